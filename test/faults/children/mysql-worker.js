// A worker on MySQL or MariaDB that is told to stop, and then has to end by itself: see after-restart.test.ts.
import { createOutbox, silentLogger } from 'aftercommit'
import { mysqlStore } from 'aftercommit/mysql'
import { createPool } from 'mysql2/promise'

const tell = (message) => process.connected && process.send(message)
process.on('uncaughtException', (error) => tell({ problem: String(error?.stack ?? error) }))
process.on('unhandledRejection', (error) => tell({ problem: String(error?.stack ?? error) }))

const pool = createPool({ uri: process.argv[2], connectionLimit: 6 })
const outbox = createOutbox({
  store: mysqlStore(pool),
  logger: silentLogger,
  poller: { pollIntervalMs: 200, leaseMs: 2_000 },
})
outbox.on('thing.happened', 'tell', (event) => void tell({ handled: event.eventId }))

process.on('message', async () => {
  await outbox.stop()
  await pool.end()
  tell({ stopped: true })
  process.disconnect()
})

await outbox.migrate()
await outbox.start()
tell({ started: true })
