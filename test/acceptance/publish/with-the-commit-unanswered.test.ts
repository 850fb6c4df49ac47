import { expect, it } from 'vitest'
import { postgresStore } from '../../../src/stores/postgres/index.js'
import { event } from '../../../src/testing/store-conformance/fixtures.js'
import { migratedDatabase, poolOn } from '../../support/trap-kit.js'

/** With `pg`, an event that goes with the COMMIT need not ask for its `seq`: a lower one is known. */

it('says of a row whose seq it did not ask for where to look for it: at a known one below', async () => {
  const pool = poolOn(await migratedDatabase())
  const store = postgresStore(pool, { prepare: true })
  const told: { id: string; seq: number; asked: boolean }[] = []
  const publish = () =>
    store.transaction(async (session) => {
      const one = event()
      await session.appendLater?.({
        rows: [{ event: one, token: null }],
        leaseMs: 1_000,
        sent: () => {},
        written: (seqs) => {
          const asked = typeof seqs !== 'number'
          told.push({ id: one.eventId, seq: asked ? Number(seqs.get(one.eventId)) : seqs, asked })
        },
      })
    })
  // With little going on each asks. How many come close behind another depends on the machine.
  while (told.filter((one) => !one.asked).length < 50 && told.length < 100_000) {
    await Promise.all(Array.from({ length: 50 }, publish))
  }
  const { rows } = await pool.query('select event_id, seq::int from outbox_event')
  const seqs = new Map(rows.map((row) => [row.event_id, row.seq]))
  expect(told[0]?.asked).toBe(true)
  expect(told.filter(({ id, seq, asked }) => asked && seq !== seqs.get(id))).toEqual([])
  const guessed = told.filter((one) => !one.asked)
  expect(guessed.length).toBeGreaterThanOrEqual(50)
  expect(guessed.filter(({ id, seq }) => !(seq > 0 && seq < seqs.get(id)))).toEqual([])
})
