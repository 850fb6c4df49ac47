// A process that handles ordered events. Each call is written down in the database before anything else, by a
// statement of its own, so that a SIGKILL does not hide it; some calls fail on purpose.

import { createOutbox, fixedDelay, silentLogger } from 'aftercommit'
import { postgresStore } from 'aftercommit/postgres'
import pg from 'pg'

const { url, table, name } = JSON.parse(process.argv[2])
const pool = new pg.Pool({ connectionString: url, max: 14, options: '-c synchronous_commit=off' })
const outbox = createOutbox({
  store: postgresStore(pool, { table }),
  logger: silentLogger,
  dispatcher: { concurrency: 8 },
  poller: { leaseMs: 2_000, pollIntervalMs: 300 },
  retry: { maxAttempts: 1_000, policy: fixedDelay(5) },
})
let calls = 0
outbox.on('aggregate.changed', 'note', async (event) => {
  calls++
  const { rows } = await pool.query({
    name: 'note',
    text: `insert into ${table}_call (key, version, worker, began) values ($1, $2, $3, clock_timestamp()) returning id`,
    values: [event.orderingKey, event.payload.version, name],
  })
  const fails = calls % 31 === 0
  await pool.query({
    name: 'ended',
    text: `update ${table}_call set ended = clock_timestamp() where id = $1`,
    values: [rows[0].id],
  })
  if (fails) throw new Error('on purpose')
})
await outbox.start()
process.send('started')
process.on('message', async () => {
  await outbox.stop()
  await pool.end()
  process.disconnect()
})
