// pg-boss as fast as its public API goes: fetch and complete 500 at a time, four loops. Drains only.
import { PgBoss } from 'pg-boss'
import { payloadOf } from './payload.js'
import { poolFor } from './pool.js'

const QUEUE = 'order-placed'
const BATCH = 500
const LOOPS = 4

export const side = { fill, open }

function boss(url) {
  const created = new PgBoss({ connectionString: url, schedule: false, supervise: false, max: 10 })
  created.on('error', () => {})
  return created
}

async function fill(url, count) {
  const writer = boss(url)
  await writer.start()
  await writer.createQueue(QUEUE)
  for (let first = 0; first < count; first += 5_000) {
    const jobs = Array.from({ length: Math.min(5_000, count - first) }, (_, i) => ({
      data: payloadOf(first + i),
    }))
    await writer.insert(QUEUE, jobs)
  }
  await writer.stop({ graceful: false })
}

async function open(url, { tuning } = {}) {
  const { loops = LOOPS, batch = BATCH } = tuning ?? {}
  const pool = poolFor(url, { connections: 1 })
  const reader = boss(url)
  let working = []
  let stopping = false
  return {
    async start(handler) {
      await reader.start()
      const loop = async () => {
        while (!stopping) {
          const jobs = await reader.fetch(QUEUE, { batchSize: batch })
          if (jobs.length === 0) return
          for (const job of jobs) await handler(job.data)
          await reader.complete(
            QUEUE,
            jobs.map((job) => job.id),
          )
        }
      }
      working = Array.from({ length: loops }, loop)
    },
    lateId: async () => undefined,
    async unsettled() {
      const { rows } = await pool.query(
        `select exists (select 1 from pgboss.job where name = $1 and state < 'completed') as left`,
        [QUEUE],
      )
      return rows[0].left
    },
    async stop() {
      stopping = true
      await Promise.all(working)
      await reader.stop({ graceful: false })
      await pool.end()
    },
  }
}
