import type { Pool } from 'mysql2/promise'
import { expect, it } from 'vitest'
import { mysqlStore } from '../../../src/stores/mysql/index.js'
import { newWorld, onMysql, rowsOf } from './kit.js'

const PAGE_BYTES = 16_384
const LARGE_BYTES = 1_000_000

async function insertMany(pool: Pool, prefix: string, count: number, bytes: number): Promise<void> {
  await pool.query(
    `insert into outbox_event (event_id, event_type, payload)
       with recursive n (i) as (select 1 union all select i + 1 from n where i < ?)
       select concat(?, i), 'x', concat('"', repeat('x', ?), '"') from n`,
    [count, prefix, bytes],
  )
}

/** Bytes of the pages that the server has looked at. Other tests on the server only add to it. */
async function readBytes(pool: Pool): Promise<number> {
  const [row] = await rowsOf(pool, `show global status like 'Innodb_buffer_pool_read_requests'`)
  return Number(row?.Value) * PAGE_BYTES
}

onMysql('a claim among large rows', () => {
  it('reads few rows more than it takes, and takes every row in the end', { timeout: 120_000 }, async () => {
    const { pool } = await newWorld({}, { connectionLimit: 4 })
    const store = mysqlStore(pool)
    await insertMany(pool, 'large-', 100, LARGE_BYTES)
    await insertMany(pool, 'small-', 300, 10)
    const taken: string[] = []
    const costs: number[] = []
    for (let n = 0, complete = false; !complete; n++) {
      const before = await readBytes(pool)
      const result = await store.claim({
        token: `mine:${n}`,
        leaseMs: 600_000,
        limit: 500,
        maxBytes: 10 * LARGE_BYTES,
        accept: { names: [], versions: [], prefixes: [''] },
        fromSeq: 0,
        suspects: 0,
        skipRecentMs: 0,
      })
      costs.push((await readBytes(pool)) - before)
      taken.push(...result.rows.map(({ eventId }) => eventId))
      complete = result.complete
      expect(n, 'the claims come to an end').toBeLessThan(100)
    }
    expect(new Set(taken).size).toBe(400)
    expect(taken).toHaveLength(400)
    // The first claim looks at all large rows. Pages are counted more than once, so the limit is not tight.
    expect(Math.min(...costs.slice(1, 4))).toBeLessThan(70 * LARGE_BYTES)
    expect(costs[0]).toBeGreaterThan(100 * LARGE_BYTES)
  })
})
