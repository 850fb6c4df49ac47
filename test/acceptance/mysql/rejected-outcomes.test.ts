import { it } from 'vitest'
import { mysqlStore } from '../../../src/stores/mysql/index.js'
import { passesRefusedOutcome, type Rules, replacesRefusedText } from '../../support/rejected-outcomes.js'
import { freshUrl, onMysql, poolOn } from './kit.js'

async function world() {
  const pool = poolOn(await freshUrl())
  const constraint = (name: string, condition: string) =>
    pool.query(`alter table outbox_event add constraint ${name} check (${condition})`)
  const rules: Rules = {
    refuseText: () => constraint('no_text', `last_error not like '%forbidden%'`),
    refuseSettlement: (id) => constraint('no_settlement', `event_id <> '${id}' or status = 0`),
    allowSettlement: () => pool.query('alter table outbox_event drop constraint no_settlement'),
  }
  return { store: mysqlStore(pool), rules }
}

onMysql('an outcome that the database rejects', () => {
  it('gets another error text when the database cannot store its own, and delays no other outcome', async () => {
    const { store, rules } = await world()
    // MySQL says HY000 (3819), MariaDB 23000 (4025).
    await replacesRefusedText(store, rules, /error text could not be stored: SQLSTATE (HY000|23000)$/)
  })

  it('delays no other outcome, and is written once the database takes it', { timeout: 60_000 }, async () => {
    const { store, rules } = await world()
    await passesRefusedOutcome(store, rules)
  })
})
