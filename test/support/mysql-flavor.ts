import { inject } from 'vitest'
import { type MariadbServer, startMariadb } from './mariadb-server.js'
import { flavorOf, type MysqlOptions, startMysql } from './mysql-server.js'

const url = inject('mysqlUrl')

/** Name of the server that the current project runs on, for titles of suites. */
export const flavor = url === null ? 'MySQL or MariaDB' : await flavorOf(url)

export const isMariadb = flavor === 'MariaDB'

/** Starts a private server of the same kind as the server of the current project. The test may restart or kill it. */
export function startOwnServer(options: MysqlOptions = {}): Promise<MariadbServer> {
  return isMariadb ? startMariadb(options) : startMysql(options)
}
