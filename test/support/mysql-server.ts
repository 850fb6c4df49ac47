import { createConnection } from 'mysql2/promise'
import {
  findMysql,
  type MysqlOptions,
  type MysqlServer,
  startMysql as startServer,
} from '../../scripts/mysql-server.mjs'

export { freshMysql } from './mariadb-server.js'
export { findMysql, type MysqlOptions, type MysqlServer }

/** Starts a private MySQL server, which the test may restart or kill. Without fsync unless `options` says otherwise. */
export function startMysql(options: MysqlOptions = {}): Promise<MysqlServer> {
  return startServer({ fsync: false, ...options })
}

export type Flavor = 'MySQL' | 'MariaDB'

/** Asks the server of `url` whether it is a MySQL or a MariaDB. */
export async function flavorOf(url: string): Promise<Flavor> {
  const connection = await createConnection({ uri: url })
  try {
    const [rows] = await connection.query({ sql: 'select version()', rowsAsArray: true })
    return /mariadb/i.test(String((rows as unknown[][])[0]?.[0])) ? 'MariaDB' : 'MySQL'
  } finally {
    await connection.end()
  }
}
