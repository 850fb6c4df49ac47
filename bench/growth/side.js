// Our side with payloads of a size and with several handlers for each event.

import { open as openOurs, side as ours } from '../lib/ours.js'
import { TYPE } from '../lib/payload.js'
import { payloadOfSize } from './payload.js'

const BYTES_IN_A_TRANSACTION = 5_000_000

export const side = { install: ours.install, fill, open }

async function fill(url, count, { bytes } = {}) {
  if (bytes === undefined) return ours.fill(url, count)
  await ours.install(url)
  const { outbox, stop } = await openOurs(url, { connections: 1 })
  const batch = Math.min(1_000, Math.max(1, Math.floor(BYTES_IN_A_TRANSACTION / bytes)))
  for (let first = 0; first < count; first += batch) {
    const events = Array.from({ length: Math.min(batch, count - first) }, (_, at) => ({
      type: TYPE,
      payload: payloadOfSize(first + at, bytes),
    }))
    await outbox.transaction((tx) => tx.publishAll(events))
  }
  await stop()
}

/** The first handler is the one that counts; the others are there to be called. */
async function open(url, { handlers = 1, ...options } = {}) {
  const app = await openOurs(url, options)
  return {
    ...app,
    async start(handler) {
      for (let n = 2; n <= handlers; n++) app.outbox.on(TYPE, `bench-${n}`, async (event) => event.payload)
      await app.start(handler)
    },
  }
}
