import { randomBytes } from 'node:crypto'
import { createConnection } from 'mysql2/promise'
import {
  findMariadb,
  type MariadbOptions,
  type MariadbServer,
  startMariadb as startServer,
} from '../../scripts/mariadb-server.mjs'

export { findMariadb, type MariadbOptions, type MariadbServer }

/** The second run of `npm test`, on Node 24, has the newest MariaDB of Debian. `MARIADB_RELEASE=newest` selects it for other runs. */
export const RUNS_NEWEST =
  process.env.AFTERCOMMIT_RUN === 'second' || process.env.MARIADB_RELEASE === 'newest'

/** A MariaDB server of the test's own, to restart or to kill. Without fsync unless asked. */
export function startMariadb(options: MariadbOptions = {}): Promise<MariadbServer> {
  return startServer({ fsync: false, release: RUNS_NEWEST ? 'newest' : 'installed', ...options })
}

/** An empty database with a name of its own, on the server of `baseUrl`. */
export async function freshMysql(baseUrl: string): Promise<{ url: string; drop(): Promise<void> }> {
  const name = `test_${randomBytes(8).toString('hex')}`
  await runAlone(baseUrl, `CREATE DATABASE ${name}`)
  const url = new URL(baseUrl)
  url.pathname = `/${name}`
  return { url: url.href, drop: () => runAlone(baseUrl, `DROP DATABASE IF EXISTS ${name}`) }
}

async function runAlone(url: string, sql: string): Promise<void> {
  const connection = await createConnection({ uri: url })
  try {
    await connection.query(sql)
  } finally {
    await connection.end()
  }
}
