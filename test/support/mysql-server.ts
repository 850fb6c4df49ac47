import { createConnection } from 'mysql2/promise'
import {
  findMysql,
  type MysqlOptions,
  type MysqlServer,
  startMysql as startServer,
} from '../../scripts/mysql-server.mjs'
import { startMariadb } from './mariadb-server.js'

export { freshMysql } from './mariadb-server.js'
export { findMysql, type MysqlOptions, type MysqlServer }

/** Starts a private MySQL server, which the test may restart or kill. Without fsync unless `options` says otherwise. */
export function startMysql(options: MysqlOptions = {}): Promise<MysqlServer> {
  return startServer({ fsync: false, ...options })
}

/** `MySQL` or `MariaDB`, as the server of `url` reports it. `MySQL or MariaDB` if there is no server. */
export async function flavorOf(url: string | null): Promise<'MySQL' | 'MariaDB' | 'MySQL or MariaDB'> {
  if (url === null) return 'MySQL or MariaDB'
  const connection = await createConnection({ uri: url })
  try {
    const [rows] = await connection.query({ sql: 'select version()', rowsAsArray: true })
    return /mariadb/i.test(String((rows as unknown[][])[0]?.[0])) ? 'MariaDB' : 'MySQL'
  } finally {
    await connection.end()
  }
}

/** Starts a private server of the same kind as the server of `url`. */
export async function startLike(url: string, options: MysqlOptions = {}): Promise<MysqlServer> {
  return (await flavorOf(url)) === 'MariaDB' ? startMariadb(options) : startMysql(options)
}
