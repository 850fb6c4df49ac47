import { createRequire } from 'node:module'
import type { SqliteDatabase } from '../../../src/stores/sqlite/index.js'
import { sqliteStore } from '../../../src/stores/sqlite/index.js'
import { sqliteFolder } from '../../support/sqlite-drivers.js'

interface Reader extends SqliteDatabase {
  prepare(sql: string): { all(...params: unknown[]): unknown[]; run(...params: unknown[]): unknown }
}

const Libsql: new (file: string) => Reader = createRequire(import.meta.url)('libsql')

export const BROKEN = 'select * from nowhere_at_all'

/**
 * A file for the ORM. The outbox has connections of its own, by the same driver: two copies of SQLite in one process do
 * not see each other's locks.
 */
export function sqliteDatabase(open: (file: string) => SqliteDatabase = (file) => new Libsql(file)) {
  const folder = sqliteFolder()
  const file = folder.file('app.db')
  const reader = open(file) as Reader
  reader.exec('PRAGMA journal_mode = WAL')
  reader.exec('create table business (id text primary key)')
  const select = reader.prepare('select id from business where id in (select value from json_each(?))')
  return {
    file,
    world: {
      createStore: (table: string) => sqliteStore(() => open(file), { table }),
      openAtOnce: 1,
      afterFailure: 'goes on',
      committed: async (ids: readonly string[]) =>
        (select.all(JSON.stringify(ids)) as { id: string }[]).map((row) => row.id),
      dispose: async () => {},
    } as const,
    drop() {
      reader.close()
      folder.remove()
    },
  }
}

export type Database = ReturnType<typeof sqliteDatabase>
