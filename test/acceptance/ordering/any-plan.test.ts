import { expect, it } from 'vitest'
import { postgresStore } from '../../../src/stores/postgres/index.js'
import { ANY, event } from '../../../src/testing/store-conformance/fixtures.js'
import { migratedDatabase, poolOn } from '../../support/trap-kit.js'

/** Behind a pooler the connections cannot be told which plans are good: order must not depend on it. */

const NO_INDEX = ['enable_indexscan', 'enable_indexonlyscan', 'enable_bitmapscan']

it('a key is claimed in order also when its rows are not read by the index', async () => {
  const url = await migratedDatabase()
  const { pathname } = new URL(url)
  const admin = poolOn(url)
  for (const setting of NO_INDEX) {
    await admin.query(`alter database "${pathname.slice(1)}" set ${setting} = off`)
  }
  const pool = poolOn(url)
  const store = postgresStore(pool, { prepare: false })
  const events = Array.from({ length: 24 }, () => event({ orderingKey: 'key' }))
  const ids = events.map((one) => one.eventId)
  await store.transaction(({ client }) =>
    store.append(
      client,
      events.map((one) => ({ event: one, token: null })),
      { leaseMs: 1_000, onDuplicate: 'error' },
    ),
  )
  // The first row lies behind all the others.
  const first = 'delete from outbox_event where event_id = $1 returning *'
  await pool.query(`with first as (${first}) insert into outbox_event select * from first`, [ids[0]])
  const { rows: found } = await pool.query('select event_id from outbox_event')
  expect(found.at(-1)?.event_id).toBe(ids[0])
  const bounds = { keys: 10, runLength: 16, limit: 100, maxBytes: 1e6, suspects: 0, skipRecentMs: 0 }
  const { rows } = await store.claimOrdered({
    ...bounds,
    ...{ token: 'one', leaseMs: 30_000, accept: ANY, afterKey: '' },
  })
  expect(rows.map((row) => row.eventId)).toEqual(ids.slice(0, 16))
})
