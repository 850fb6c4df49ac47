import { payloadOfSize } from '../growth/payload.js'
import { peakMb } from '../lib/memory.js'
import { now } from '../lib/numbers.js'
import { insertOrder, payloadOf, TYPE } from '../lib/payload.js'

/**
 * `connections` loops of business transactions, each with an order and `events` events of about `bytes` bytes, in a
 * process that only publishes: first `warm` transactions, then `count` on the clock.
 */
export async function play({ side, url, connections, warm, count, events = 1, bytes, options }) {
  const app = await side.open(url, { connections, ...options })
  await app.start()
  const payload = (id) => (bytes === undefined ? payloadOf(id) : payloadOfSize(id, bytes))
  const transaction = (id) =>
    app.outbox.transaction(async (tx) => {
      await tx.client.query(insertOrder(payloadOf(id)))
      const drafts = Array.from({ length: events }, (_, at) => ({
        type: TYPE,
        payload: payload(id * events + at),
      }))
      if (events === 1) await tx.publish(drafts[0])
      else await tx.publishAll(drafts)
    })
  let next = 0
  const run = async (to) => {
    const loop = async () => {
      while (next < to) await transaction(next++)
    }
    await Promise.all(Array.from({ length: connections }, loop))
  }
  await run(warm)
  const began = now()
  await run(warm + count)
  const ended = now()
  await app.stop()
  return {
    rate: ((count * events) / (ended - began)) * 1000,
    peakMb: peakMb(),
  }
}
