import { execFile } from 'node:child_process'
import path from 'node:path'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'
import { migratedDatabase, poolOn } from '../support/trap-kit.js'

/** A million by SMALL_HEAP_ROWS=1000000. */
const ROWS = Number(process.env.SMALL_HEAP_ROWS ?? 100_000)
const script = path.resolve(import.meta.dirname, 'children/small-heap.js')

it(`a process with a heap of 64 MB drains ${ROWS.toLocaleString('en')} waiting rows`, {
  timeout: 900_000,
}, async () => {
  const url = await migratedDatabase()
  const pool = poolOn(url, { max: 1 })
  // Together many times what fits into the heap: 600 bytes each.
  await pool.query(`insert into outbox_event (event_id, event_type, payload)
    select n::text, 'thing.happened', json_build_object('n', n, 'text', repeat('x', 560))
    from generate_series(1, ${ROWS}) n`)
  await pool.query('analyze outbox_event')
  // V8 of Node 24 allows 64 MB per semi-space by default. With both options the limit is 112 MB on Node 20 and on Node 24.
  const args = [
    '--max-old-space-size=64',
    '--max-semi-space-size=16',
    script,
    JSON.stringify({ url, rows: ROWS }),
  ]
  const { stdout } = await promisify(execFile)(process.execPath, args, { timeout: 880_000 })
  console.log(`small heap: ${stdout.trim()}`)
  const { handled, peakHeapMb, limitMb } = JSON.parse(stdout)
  expect(limitMb).toBeLessThan(140)
  expect(handled).toBe(ROWS)
  // The limit that V8 tells is higher than the one it was given, and cannot be passed.
  expect(peakHeapMb).toBeLessThan(64)
  const { rows } = await pool.query('select status, count(*)::int n from outbox_event group by 1')
  expect(rows).toEqual([{ status: 1, n: ROWS }])
})
