import { describe, it, onTestFinished } from 'vitest'
import { sqliteStore } from '../../../src/stores/sqlite/index.js'
import { passesRefusedOutcome, type Rules, replacesRefusedText } from '../../support/rejected-outcomes.js'
import { type SqliteDriver, sqliteDrivers, sqliteFolder } from '../../support/sqlite-drivers.js'

function world(open: SqliteDriver['open']) {
  const folder = sqliteFolder()
  onTestFinished(() => folder.remove())
  const file = folder.file('app.db')
  const run = async (sql: string) => {
    const db = open(file)
    try {
      db.exec('PRAGMA busy_timeout = 2000')
      db.exec(sql)
    } finally {
      db.close()
    }
  }
  const trigger = (name: string, condition: string) =>
    run(
      `create trigger ${name} before update on outbox_event when ${condition} begin select raise(abort, 'refused'); end`,
    )
  const rules: Rules = {
    refuseText: () => trigger('no_text', `new.last_error like '%forbidden%'`),
    refuseSettlement: (id) => trigger('no_settlement', `new.event_id = '${id}' and new.status <> 0`),
    allowSettlement: () => run('drop trigger no_settlement'),
  }
  return { store: sqliteStore(() => open(file)), rules }
}

describe.each(sqliteDrivers())('SQLite by $name: an outcome that the database rejects', ({ open }) => {
  it('gets another error text when the database cannot store its own, and delays no other outcome', async () => {
    const { store, rules } = world(open)
    await replacesRefusedText(store, rules, /error text could not be stored: SQLITE_CONSTRAINT$/)
  })

  it('delays no other outcome, and is written once the database takes it', { timeout: 60_000 }, async () => {
    const { store, rules } = world(open)
    await passesRefusedOutcome(store, rules)
  })
})
