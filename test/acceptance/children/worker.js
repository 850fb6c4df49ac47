// A worker process of the acceptance tests. Its settings come as JSON in the first argument; it is told what to do,
// and tells what happens, by messages. What a handler does is in the payload's `act`: note, hang or die.
import { createOutbox, fixedDelay } from 'aftercommit'
import { postgresStore } from 'aftercommit/postgres'
import pg from 'pg'

const { url, table, doorbell = false, hangs = true, ...options } = JSON.parse(process.argv[2])
const pool = new pg.Pool({ connectionString: url, max: 8 })
pool.on('error', () => {})
const tell = (message) => process.connected && process.send(message)

let release = () => {}
const released = new Promise((resolve) => {
  release = resolve
})

const log = (level) => (fields, message) => tell({ told: 'log', level, message, eventId: fields.event_id })
const outbox = createOutbox({
  store: reporting(postgresStore(pool, { table, doorbell })),
  logger: { debug() {}, info() {}, warn: log('warn'), error: log('error') },
  retry: { maxAttempts: options.maxAttempts ?? 10, policy: fixedDelay(0) },
  poller: options.poller,
  dispatcher: options.dispatcher,
})

outbox.on('*', 'work', async (event, { attempt, signal }) => {
  const from = process.hrtime.bigint()
  const { act = 'note' } = event.payload ?? {}
  tell({ told: 'started', id: event.eventId, attempt })
  signal.addEventListener('abort', () =>
    tell({ told: 'aborted', id: event.eventId, code: signal.reason?.code }),
  )
  if (act === 'die') process.kill(process.pid, 'SIGKILL')
  if (act === 'hang' && hangs) await released
  else await new Promise((resolve) => setImmediate(resolve))
  tell({ told: 'ended', id: event.eventId, from: String(from), to: String(process.hrtime.bigint()) })
})

let stopped = false
// When the test is gone; but after a stop it has to end by itself.
process.on('disconnect', () => stopped || process.exit())
process.on('message', async ({ order, events, publish }) => {
  if (order === 'release') release()
  if (order === 'publish') {
    await outbox.transaction((tx) => tx.publishAll(events, publish))
    tell({ told: 'published' })
  }
  if (order === 'stop') {
    await outbox.stop()
    await pool.end()
    stopped = true
    tell({ told: 'stopped' })
    process.disconnect()
  }
})

await outbox.start()
tell({ told: 'ready', now: Date.now() })

/** The same store, which tells of every claim that has come back. */
function reporting(store) {
  return new Proxy(store, {
    get(target, name) {
      const value = Reflect.get(target, name, target)
      if (typeof value !== 'function') return value
      return (...args) => {
        const result = value.apply(target, args)
        if (name === 'claim') {
          const claimed = ({ rows }) =>
            tell({ told: 'claimed', ids: rows.map((row) => row.eventId), sweep: args[0].fromSeq === 0 })
          result.then(claimed, () => {})
        }
        return result
      }
    },
  })
}
