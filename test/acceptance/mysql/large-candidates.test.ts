import type { Pool } from 'mysql2/promise'
import { expect, it } from 'vitest'
import { mysqlStore } from '../../../src/stores/mysql/index.js'
import { newWorld, onMysql, rowsOf } from './kit.js'

const LARGE_BYTES = 1_000_000

async function insertMany(pool: Pool, prefix: string, count: number, bytes: number): Promise<void> {
  await pool.query(
    `insert into outbox_event (event_id, event_type, payload)
       with recursive n (i) as (select 1 union all select i + 1 from n where i < ?)
       select concat(?, i), 'x', concat('"', repeat('x', ?), '"') from n`,
    [count, prefix, bytes],
  )
}

/** Number of rows and index entries that the session of the pool has read. */
async function readRows(pool: Pool): Promise<number> {
  const rows = await rowsOf(pool, `show session status like 'Handler_read%'`)
  return rows.reduce((sum, row) => sum + Number(row.Value), 0)
}

onMysql('a claim among large rows', () => {
  it('reads few rows more than it takes, and takes every row in the end', { timeout: 120_000 }, async () => {
    const { pool } = await newWorld({}, { connectionLimit: 1 })
    const store = mysqlStore(pool)
    await insertMany(pool, 'large-', 100, LARGE_BYTES)
    await insertMany(pool, 'small-', 300, 10)
    const taken: string[] = []
    const costs: number[] = []
    for (let n = 0, complete = false; !complete; n++) {
      const before = await readRows(pool)
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
      costs.push((await readRows(pool)) - before)
      taken.push(...result.rows.map(({ eventId }) => eventId))
      complete = result.complete
      expect(n, 'the claims come to an end').toBeLessThan(100)
    }
    expect(new Set(taken).size).toBe(400)
    expect(taken).toHaveLength(400)
    // The first claim reads all rows. Later claims read about twice the rows that they take.
    expect(costs[0]).toBeGreaterThan(400)
    expect(Math.max(...costs.slice(1, 9))).toBeLessThan(200)
  })
})
