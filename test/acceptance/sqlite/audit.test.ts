import { describe, onTestFinished } from 'vitest'
import { type SqliteDatabase, sqliteStore } from '../../../src/stores/sqlite/index.js'
import { testAuditOfCallersTransaction } from '../../support/callers-transaction.js'
import { sqliteDrivers, sqliteFolder } from '../../support/sqlite-drivers.js'

describe('the audit line of an event', () => {
  for (const { name, open } of sqliteDrivers()) {
    testAuditOfCallersTransaction<SqliteDatabase>(`SQLite by ${name}`, async () => {
      const folder = sqliteFolder()
      onTestFinished(() => folder.remove())
      const file = folder.file('events.db')
      return {
        store: sqliteStore(() => open(file)),
        begin: async () => {
          const client = open(file)
          client.exec('BEGIN IMMEDIATE')
          return { client, run: async (sql) => client.exec(sql), end: async () => client.close() }
        },
      }
    })
  }
})
