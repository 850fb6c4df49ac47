// Drains a table in a small heap, and prints how that went: see test/faults/small-heap.test.ts.
import { getHeapStatistics } from 'node:v8'
import { createOutbox, silentLogger } from 'aftercommit'
import { postgresStore } from 'aftercommit/postgres'
import pg from 'pg'

const { url, rows } = JSON.parse(process.argv[2])
const pool = new pg.Pool({ connectionString: url, max: 6 })
const outbox = createOutbox({ store: postgresStore(pool), logger: silentLogger })

let handled = 0
let peak = 0
let done = () => {}
const all = new Promise((resolve) => {
  done = resolve
})
outbox.on('thing.happened', 'count', () => {
  if (++handled % 100 === 0) peak = Math.max(peak, process.memoryUsage().heapUsed)
  if (handled === rows) done()
})

const began = performance.now()
await outbox.start()
await all
await outbox.drain()
const ms = Math.round(performance.now() - began)
await outbox.stop()
await pool.end()
const mb = (bytes) => Math.round(bytes / 1_048_576)
const limitMb = mb(getHeapStatistics().heap_size_limit)
console.log(
  JSON.stringify({
    handled,
    ms,
    peakHeapMb: mb(peak),
    limitMb,
    rssMb: mb(process.resourceUsage().maxRSS * 1_024),
  }),
)
