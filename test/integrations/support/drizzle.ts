import type { BetterSQLite3Database } from 'drizzle-orm/better-sqlite3'
import { BetterSQLiteSession } from 'drizzle-orm/better-sqlite3/session'
import { BaseSQLiteDatabase, SQLiteSyncDialect } from 'drizzle-orm/sqlite-core'

/** As `drizzle(connection)` does, whose module asks for better-sqlite3 where it cannot be installed. */
export function synchronous(connection: unknown): BetterSQLite3Database {
  const dialect = new SQLiteSyncDialect()
  const session = new BetterSQLiteSession(connection as never, dialect, undefined)
  const db = new BaseSQLiteDatabase('sync', dialect, session as never, undefined)
  return Object.assign(db, { $client: connection }) as unknown as BetterSQLite3Database
}
