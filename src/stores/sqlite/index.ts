import { InvalidSettingError } from '../../core/errors.js'
import { readSettings } from '../../core/settings.js'
import type { OutboxStore } from '../../store.js'
import type { SqliteDatabase } from './driver.js'
import { SqliteStore, type SqliteStoreOptions } from './store.js'

export type { SqliteDatabase, SqliteStatement } from './driver.js'
export type { SqliteStoreOptions } from './store.js'

/**
 * The SQLite store. `open` opens one more connection to the database file, with better-sqlite3, libsql or node:sqlite;
 * the store opens two for itself, and closes them with the outbox.
 */
export function sqliteStore<Client extends SqliteDatabase>(
  open: () => Client,
  given: SqliteStoreOptions = {},
): OutboxStore<Client> {
  if (typeof open !== 'function') {
    throw new InvalidSettingError(
      'open',
      `must be a function that opens a connection: sqliteStore(() => new Database('app.db'))`,
    )
  }
  return new SqliteStore(open, readSettings('sqliteStore()', given, ['table']))
}
