// pg-boss as fast as its public API goes: a backlog is fetched and completed 500 at a time by four loops; what arrives
// while it runs (`live`) is taken by its own worker, 500 at a time, polling as often as it may.
import { PgBoss } from 'pg-boss'
import { withClient } from './databases.js'
import { insertOrder, ORDERS, payloadOf } from './payload.js'
import { poolFor, transact, warmUp } from './pool.js'

const QUEUE = 'order-placed'
const BATCH = 500
const LOOPS = 4
const LIVE = { batchSize: BATCH, pollingIntervalSeconds: 0.5, burstWhenBatchFull: true }

export const side = { install, fill, open }

function boss(url) {
  const created = new PgBoss({ connectionString: url, schedule: false, supervise: false, max: 10 })
  created.on('error', () => {})
  return created
}

async function install(url) {
  await fill(url, 0)
  await withClient(url, (client) => client.query(ORDERS))
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

async function open(url, { connections = 1, onCommit, live = false, tuning } = {}) {
  const { loops = LOOPS, batch = BATCH } = tuning ?? {}
  const pool = poolFor(url, { connections, onCommit })
  await warmUp(pool, connections)
  const reader = boss(url)
  let working = []
  let stopping = false
  return {
    async start(handler) {
      await reader.start()
      if (live) {
        await reader.work(QUEUE, LIVE, async (jobs) => {
          for (const job of jobs) await handler(job.data)
        })
        return
      }
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
    transaction: (payload) =>
      transact(pool, payload.id, async (client) => {
        await client.query(insertOrder(payload))
        const db = { executeSql: (text, values) => client.query(text, values) }
        await reader.send(QUEUE, payload, { db })
      }),
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
      await reader.stop({ graceful: live })
      await pool.end()
    },
  }
}
