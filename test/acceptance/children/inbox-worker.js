// A worker process that is killed while it handles events. At the step that an event names in its payload it tells the
// test, and goes on when it is told to, if it lives to hear that.
import { createOutbox, fixedDelay, silentLogger } from 'aftercommit'
import { exactlyOnce } from 'aftercommit/inbox'
import { postgresStore } from 'aftercommit/postgres'
import pg from 'pg'

const { url, table, marked } = JSON.parse(process.argv[2])
const pool = new pg.Pool({ connectionString: url, max: 5 })
pool.on('error', () => {})

const outbox = createOutbox({
  store: postgresStore(pool, { table, doorbell: false }),
  logger: silentLogger,
  retry: { maxAttempts: 1_000, policy: fixedDelay(0) },
  poller: { leaseMs: 400, pollIntervalMs: 40, batchSize: 1 },
  dispatcher: { concurrency: 1, coldQueueSize: 1 },
})

let goOn = () => {}
process.on('message', () => goOn())
process.on('disconnect', () => process.exit())

async function reach(step, { eventId, payload }) {
  if (payload.step !== step) return
  const told = new Promise((resolve) => {
    goOn = resolve
  })
  process.send({ step, eventId })
  // The COMMIT is sent while the signal is on its way.
  if (step !== 'committing') await told
}

async function effect(event, { tx }) {
  await tx.client.query(`insert into ${table}_effect values ($1, 'count')`, [event.eventId])
  await tx.publish({ type: 'thing.followed', payload: { of: event.eventId } })
  await reach('in the transaction', event)
  await reach('committing', event)
}

const handle = marked
  ? exactlyOnce(effect, outbox)
  : (event) => outbox.transaction((tx) => effect(event, { tx }))

outbox.on('thing.happened', 'count', async (event, context) => {
  await handle(event, context)
  await reach('committed', event)
})
await outbox.start()
