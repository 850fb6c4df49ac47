// A worker process of the SQLite tests, on the built package. Its settings come as JSON in the first argument; it tells
// by messages which events it handles and what it logs. With `hangs` a handler never returns.
import { createRequire } from 'node:module'
import { createOutbox } from 'aftercommit'
import { sqliteStore } from 'aftercommit/sqlite'

const { driver, file, hangs = false, poller } = JSON.parse(process.argv[2])
const tell = (message) => process.connected && process.send(message)
const log = (level) => (fields, message) => tell({ log: `${level}: ${message} ${JSON.stringify(fields)}` })

process.on('uncaughtException', (error) => tell({ log: `uncaught: ${error?.stack}` }))
process.on('unhandledRejection', (error) => tell({ log: `unhandled: ${error?.stack}` }))

const Database = await databaseOf(driver)
const outbox = createOutbox({
  store: sqliteStore(() => new Database(file)),
  logger: { debug() {}, info() {}, warn: log('warn'), error: log('error') },
  poller,
})
outbox.on('*', 'work', async (event, { attempt }) => {
  const at = String(process.hrtime.bigint())
  tell({ handled: event.eventId, attempt, at, key: event.orderingKey, n: event.payload.n })
  if (hangs) await new Promise(() => {})
  await new Promise((resolve) => setImmediate(resolve))
})

process.on('disconnect', () => process.exit())
process.on('message', async () => {
  await outbox.stop()
  tell({ stopped: true })
  process.disconnect()
})

await outbox.start()
tell({ ready: true })

async function databaseOf(name) {
  if (name === 'libsql') return (await import('libsql')).default
  if (name === 'node:sqlite') return (await import('node:sqlite')).DatabaseSync
  return createRequire(new URL('../../../scripts/binaries/package.json', import.meta.url))(name)
}
