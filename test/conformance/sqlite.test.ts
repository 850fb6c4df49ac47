import { afterAll, afterEach, beforeEach, describe, it } from 'vitest'
import { sqliteStore } from '../../src/stores/sqlite/index.js'
import { type InsertedRow, storeConformance } from '../../src/testing/index.js'
import { sqliteDrivers, sqliteFolder } from '../support/sqlite-drivers.js'

const runner = { describe, it, beforeEach, afterEach }

for (const { name, open } of sqliteDrivers()) {
  describe(name, () => {
    const folder = sqliteFolder()
    let files = 0
    afterAll(() => folder.remove())

    storeConformance({
      name: `SQLite by ${name}`,
      runner,
      createStore: async () => {
        const file = folder.file(`${++files}.db`)
        return {
          store: sqliteStore(() => open(file)),
          dispose: async () => {},
          begin: () => begin(file),
          insert: inserting(file),
        }
      },
      failingStatement: async (client) => client.exec('select * from nowhere'),
    })

    function inserting(file: string) {
      return async (row: InsertedRow) => {
        const client = open(file)
        try {
          const columns = Object.keys(row)
          const sql = `insert into outbox_event (${columns.join(', ')}) values (${columns.map((name) => `:${name}`)})`
          client.prepare(sql).run(row as never)
        } finally {
          client.close()
        }
      }
    }

    async function begin(file: string) {
      const client = open(file)
      client.exec('BEGIN IMMEDIATE')
      return {
        client,
        commit: async () => void client.exec('COMMIT'),
        rollback: async () => void client.exec('ROLLBACK'),
      }
    }
  })
}
