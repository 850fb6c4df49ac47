import { setTimeout as sleep } from 'node:timers/promises'
import { messageOf } from '../../dist/bus/message.js'
import { createOutbox, silentLogger, toEnvelope } from '../../dist/index.js'
import { postgresStore } from '../../dist/stores/postgres/index.js'
import { brokers } from '../lib/brokers.js'
import { now } from '../lib/numbers.js'
import { payloadOf, TYPE } from '../lib/payload.js'
import { poolFor } from '../lib/pool.js'

/** As many batches at a time as a relay has. */
const AT_A_TIME = 4

/**
 * `total` events to a broker: out of an outbox, until all are settled; or `bare`, by its client alone: ids, attributes and
 * serialised payloads are at hand, and what the client sends is made of them as it goes.
 */
export async function play({ broker, brokerUrl, url, total, warm, batch, bare }) {
  const client = await brokers[broker].open(brokerUrl)
  const result = bare
    ? await playBare(client, { total, warm, batch })
    : await playRelay(client, { url, total, warm, batch })
  await client.close()
  return result
}

async function playBare({ prepare, send, atATime = AT_A_TIME }, { total, warm, batch }) {
  const messages = Array.from({ length: total }, (_, id) =>
    messageOf(toEnvelope({ type: TYPE, payload: payloadOf(id) }), undefined),
  )
  let next = 0
  const upTo = async (end) => {
    const loop = async () => {
      while (next < end) {
        const from = next
        next = Math.min(end, from + batch)
        await send(messages.slice(from, next).map(prepare))
      }
    }
    await Promise.all(Array.from({ length: atATime }, loop))
  }
  await upTo(warm)
  const began = now()
  const cpu = process.cpuUsage()
  await upTo(total)
  return result(began, cpu, total - warm)
}

async function playRelay(client, { url, total, warm, batch }) {
  const pool = poolFor(url, { connections: 8 })
  const all = Promise.withResolvers()
  let sent = 0
  let began = 0
  let cpu
  const outbox = createOutbox({
    store: postgresStore(pool),
    poller: { batchSize: 1_000 },
    dispatcher: { concurrency: 96, coldQueueSize: 4_000 },
    retention: { doneMs: 0 },
    logger: silentLogger,
    metrics: {
      count: (name, by) => {
        if (name !== 'success') return
        sent += by
        if (began === 0 && sent >= warm) {
          began = now()
          cpu = process.cpuUsage()
        }
        if (sent === total) all.resolve()
      },
      gauge: () => {},
      duration: () => {},
    },
  })
  const bus = await client.bus({ logger: silentLogger, confirmTimeoutMs: 60_000 })
  outbox.relay(bus, { events: [TYPE], batchSize: batch })
  await outbox.start()
  await all.promise
  const unsettled = 'select exists (select 1 from outbox_event where status in (0, 2)) as left'
  while ((await pool.query(unsettled)).rows[0].left) await sleep(1)
  const measured = result(began, cpu, total - warm)
  await outbox.stop()
  await bus.stop()
  await pool.end()
  return measured
}

function result(began, cpu, events) {
  const { user, system } = process.cpuUsage(cpu)
  return { rate: (events / (now() - began)) * 1000, cpuMicrosPerEvent: (user + system) / events }
}
