// A worker process of the tests, driven and watched over IPC: see test/support/worker.ts.
import { createOutbox } from 'aftercommit'
import { postgresStore } from 'aftercommit/postgres'
import pg from 'pg'
import postgres from 'postgres'

const {
  url,
  driver = 'pg',
  store = {},
  outbox: settings = {},
  pool: poolSettings = {},
} = JSON.parse(process.env.WORKER)
const send = (message) => process.connected && process.send(message)

process.on('uncaughtException', (error) => send({ problem: `uncaughtException: ${error?.stack ?? error}` }))
process.on('unhandledRejection', (error) => {
  // postgres.js asks each new connection for the server's types, and nobody holds the promise of that.
  if (/typarray/.test(error?.query)) return
  send({ problem: `unhandledRejection: ${error?.stack ?? error}` })
})

const line = (level) => (fields, msg) => send({ log: { level, msg, ...fields } })
const logger = { debug: line('debug'), info: line('info'), warn: line('warn'), error: line('error') }

// On purpose without a listener for 'error': losing the server must not end a process that has none.
const pool = driver === 'pg' ? new pg.Pool({ connectionString: url, max: 8, ...poolSettings }) : undefined
const sql = driver === 'pg' ? undefined : postgres(url, { max: 8, onnotice: () => {}, ...poolSettings })
const outbox = createOutbox({ store: postgresStore(pool ?? sql, store), logger, ...settings })
outbox.on('thing.happened', 'tell', (event) => void send({ handled: event.eventId }))
outbox.on('thing.hangs', 'hang', () => {
  send({ hanging: true })
  return new Promise(() => {})
})

const commands = {
  start: () => outbox.start(),
  health: () => outbox.health(),
  enqueue: (type) => outbox.enqueue({ type, payload: 1 }),
  stop: () => outbox.stop(),
  endPool: () => (pool ? pool.end() : sql.end({ timeout: 5 })),
  resources: async () =>
    process.getActiveResourcesInfo().filter((name) => !/Pipe|TTY|FSReq|Immediate|FileHandle/.test(name)),
}

process.on('message', async ({ id, command, argument }) => {
  if (command === 'leave') return process.disconnect()
  try {
    send({ id, value: await commands[command](argument) })
  } catch (error) {
    send({ id, error: String(error) })
  }
})
send({ up: true })
