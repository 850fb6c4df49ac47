import pg from 'pg'
import { describe, expect, it } from 'vitest'
import { stress } from '../../support/range-stress.js'
import { migratedDatabase } from '../../support/trap-kit.js'

const ALL = `select coalesce(range_agg(int8range(first_seq, last_seq, '[]')), '{}') from outbox_event_range`
const LOCK = `perform pg_advisory_xact_lock_shared((181182::bigint << 32) + 'outbox_event_range'::regclass::oid::bigint)`
const taken = (traits: string, body: string) =>
  `create or replace function outbox_event_ranges_taken() returns int8multirange language plpgsql ${traits} as $$
   begin ${body} end $$`

/** What would be wrong, and the function that would be so. */
const WRONG: Record<string, (definition: string) => string> = {
  'claims by rows do not look for ranges': () => taken('', `return '{}';`),
  'they look without the lock': () => taken('', `return (${ALL});`),
  'they look at what was there when they began': () => taken('stable', `${LOCK}; return (${ALL});`),
  'a range is taken without the lock': (definition) =>
    definition.replace(/not pg_try_advisory_xact_lock[^;]*then/, 'false then'),
  'a range is added and not counted': (definition) => definition.replace(/perform nextval[^;]*;/, ''),
}

describe('claims by ranges beside claims by rows', () => {
  it('nothing is lost, done twice, or held by two at a time', { timeout: 90_000 }, async () => {
    const report = await stress(await migratedDatabase())
    expect(report.violations.slice(0, 10)).toEqual([])
    expect(report.claimed.byRange).toBeGreaterThan(500)
    expect(report.claimed.byRow).toBeGreaterThan(500)
    expect(report.vanished).toBeGreaterThan(0)
  })

  it.each(Object.keys(WRONG))('the same stress finds it when %s', { timeout: 90_000 }, async (name) => {
    const url = await migratedDatabase()
    const pool = new pg.Pool({ connectionString: url, max: 1 })
    const { rows } = await pool.query(`select pg_get_functiondef('outbox_event_take_range'::regproc) as sql`)
    const wrong = WRONG[name]?.(rows[0].sql) as string
    expect(wrong).not.toBe(rows[0].sql)
    await pool.query(wrong)
    await pool.end()
    const found: string[] = []
    for (let seed = 1; seed <= 5 && found.length === 0; seed++) {
      found.push(...(await stress(url, { seed, events: 8_000, workers: 6 })).violations)
    }
    expect(found.length).toBeGreaterThan(0)
  })
})
