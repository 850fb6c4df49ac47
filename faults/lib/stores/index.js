import { openMariadbServer, openMysqlServer } from './mysql.js'
import { openPostgresServer } from './postgres.js'
import { openSqliteFolder } from './sqlite.js'

const openers = {
  postgres: openPostgresServer,
  mysql: openMysqlServer,
  mariadb: openMariadbServer,
  sqlite: openSqliteFolder,
}

export const STORES = Object.keys(openers)

/**
 * A server of the campaign's own, or a folder for files: `fresh()` makes an empty database for a round, `stop()` leaves
 * nothing behind. The database has `url` (for the children), `pending()`, `finalState()`, `drop()`, and what the
 * scenarios of its kind do to it.
 */
export function openStore(name) {
  const open = openers[name]
  if (!open) throw new Error(`no store ${name}; there are ${STORES.join(', ')}`)
  return open()
}
