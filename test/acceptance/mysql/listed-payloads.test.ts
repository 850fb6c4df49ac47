import type { Pool, RowDataPacket } from 'mysql2/promise'
import { expect, it } from 'vitest'
import type { EventFilter, OutboxStore } from '../../../src/index.js'
import { mysqlStore } from '../../../src/stores/mysql/index.js'
import { freshUrl, onMysql, poolOn } from './kit.js'

const ROWS = 300
/** InnoDB stores a payload of this size in ten pages of its own, outside of its row. */
const LARGE = 150_000

const LISTS: readonly [title: string, filter: EventFilter, found: number][] = [
  ['new events', { status: 'NEW' }, 6],
  ['events to be retried', { status: 'RETRY' }, 4],
  ['the first dead events', { status: 'DEAD', limit: 2 }, 2],
  ['dead events of a type', { status: 'DEAD', eventType: 'rare' }, 1],
  ['done events of a type', { status: 'DONE', eventType: 'rare' }, 1],
  ['events of a type', { eventType: 'rare' }, 2],
]

/** Done and dead events with payloads of this size, and small events of all other kinds. */
async function filledStore(payloadBytes: number): Promise<{ pool: Pool; store: OutboxStore }> {
  const pool = poolOn(await freshUrl())
  const store = mysqlStore(pool)
  await store.migrate()
  const add = (prefix: string, count: number, columns: Record<string, string>) =>
    pool.query(
      `insert into outbox_event (event_id, ${Object.keys(columns).join(', ')})
       with recursive g (i) as (select 1 union all select i + 1 from g where i < ${count})
       select concat('${prefix}', i), ${Object.values(columns).join(', ')} from g`,
    )
  const payload = `json_quote(repeat('x', ${payloadBytes}))`
  const type = `if(i = ${ROWS}, 'rare', 'common')`
  const never = `'9999-12-31 23:59:59.999999'`
  await add('done', ROWS, { event_type: type, payload, status: '1', done_at: 'utc_timestamp(6)' })
  await add('dead', ROWS, { event_type: type, payload, status: '3', available_at: never })
  const small = { event_type: `'common'`, payload: `'1'` }
  const later = 'utc_timestamp(6) + interval i day'
  await add('new', 2, small)
  await add('delayed', 2, { ...small, available_at: later })
  await add('keyed', 2, { ...small, ordering_key: `'key'` })
  await add('again', 2, { ...small, status: '2', available_at: later })
  await add('keyed-again', 2, { ...small, status: '2', ordering_key: `'key'` })
  await pool.query('analyze table outbox_event')
  return { pool, store }
}

/** Page reads of the server during the call. Other sessions read pages too, so the smallest of several counts is taken. */
async function pagesRead(pool: Pool, call: () => Promise<unknown>): Promise<number> {
  const reads = async () => {
    const [rows] = await pool.query<RowDataPacket[]>(
      `show global status like 'Innodb_buffer_pool_read_requests'`,
    )
    return Number(rows[0]?.Value)
  }
  const counts: number[] = []
  for (let n = 0; n < 5; n++) {
    const before = await reads()
    await call()
    counts.push((await reads()) - before)
  }
  return Math.min(...counts)
}

onMysql('list', () => {
  it('reads the payloads of the listed rows only', async () => {
    const { pool, store } = await filledStore(LARGE)
    for (const [title, filter, found] of LISTS) {
      expect(await store.list(filter), title).toHaveLength(found)
      const pages = await pagesRead(pool, () => store.list(filter))
      // Reading the payloads of 300 rows takes 3,000 pages or more. Reading the rows without them takes about 1,000.
      expect(pages, title).toBeLessThan(2_500)
    }
  })
})
