// aftercommit, as built: the only file of the bench that knows its API and its table.
import { createOutbox, silentLogger } from '../../dist/index.js'
import { postgresStore } from '../../dist/stores/postgres/index.js'
import { withClient } from './databases.js'
import { insertOrder, ORDERS, payloadOf, TYPE } from './payload.js'
import { poolFor, warmUp } from './pool.js'

/** Connections that the outbox needs beside those of the application. */
const OWN_CONNECTIONS = 6
const TUNING = { concurrency: 96, coldQueueSize: 4_000, batchSize: 1_000, pollIntervalMs: 5_000 }
const LATE_ID =
  "select event_id as id from outbox_event where ordering_key is distinct from 'blocked' order by event_id desc offset 5000 limit 1"
const PENDING =
  "select exists (select 1 from outbox_event where status in (0, 2) and event_id > $1 and ordering_key is distinct from 'blocked') as left"

/** Older rows than this are in no bench: what is to be pruned there is pruned by hand. */
const YEAR_MS = 365 * 24 * 3_600_000

/** As built; another build of it can stand in. */
const BUILT = { createOutbox, silentLogger, postgresStore }

export const side = { install, fill, open }

/** `defaultLogger`: the outbox's own, JSON lines on standard output; else a silent one. */
function outboxOn(pool, { tuning, keepRows = false, defaultLogger = false } = {}, library = BUILT) {
  const { concurrency, coldQueueSize, batchSize, pollIntervalMs, ...more } = { ...TUNING, ...tuning }
  return library.createOutbox({
    store: library.postgresStore(pool),
    dispatcher: { concurrency, coldQueueSize },
    poller: { batchSize, pollIntervalMs },
    retention: { doneMs: keepRows ? YEAR_MS : 0 },
    ...(defaultLogger ? {} : { logger: library.silentLogger }),
    ...more,
  })
}

async function install(url) {
  const pool = poolFor(url, { connections: OWN_CONNECTIONS })
  await outboxOn(pool).migrate()
  await pool.end()
  await withClient(url, (client) => client.query(ORDERS))
}

/**
 * A backlog as a process that only writes leaves it: nobody has leased a row. `keys`: ordered, by that many keys in
 * turn. `blocked`: so many more behind a head that waits for a retry.
 */
async function fill(url, count, { keys = 0, blocked = 0 } = {}) {
  await install(url)
  const pool = poolFor(url, { connections: OWN_CONNECTIONS })
  const outbox = outboxOn(pool)
  for (let first = 0; first < count; first += 1_000) {
    const events = Array.from({ length: Math.min(1_000, count - first) }, (_, i) => ({
      type: TYPE,
      payload: payloadOf(first + i),
      ...(keys > 0 ? { orderingKey: `key-${(first + i) % keys}` } : {}),
    }))
    await outbox.transaction((tx) => tx.publishAll(events))
  }
  if (blocked > 0) await block(pool, blocked)
  await outbox.stop()
  await pool.end()
}

/** Their ids come before all others: whoever asks for the latest rows that are not settled does not read these. */
async function block(pool, count) {
  const payload = JSON.stringify(payloadOf(0))
  await pool.query(
    `insert into outbox_event (event_id, event_type, payload, payload_size, ordering_key, status, attempts, available_at)
     select '!' || n, $1::text, $2::text::json, length($2::text), 'blocked', case n when 1 then 2 else 0 end,
       case n when 1 then 1 else 0 end, now() + case n when 1 then interval '1 hour' else interval '0' end
       from generate_series(1, $3::int) n`,
    [TYPE, payload, count],
  )
}

export async function open(url, { connections = 2, onCommit, ...options } = {}, library = BUILT) {
  const pool = poolFor(url, { connections: connections + OWN_CONNECTIONS, onCommit })
  await warmUp(pool, connections)
  const outbox = outboxOn(pool, options, library)
  return {
    outbox,
    /** Without a handler: a process that only publishes. */
    async start(handler) {
      if (handler) outbox.on(TYPE, 'bench', async (event) => handler(event.payload))
      await outbox.start()
    },
    transaction: (payload) =>
      outbox.transaction(async (tx) => {
        tx.client.benchIndex = payload.id
        await tx.client.query(insertOrder(payload))
        await tx.publish({ type: TYPE, payload })
      }),
    lateId: async () => (await pool.query(LATE_ID)).rows[0]?.id,
    unsettled: async (after = '') => (await pool.query(PENDING, [after])).rows[0].left,
    async stop() {
      await outbox.stop()
      await pool.end()
    },
  }
}
