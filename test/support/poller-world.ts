import { memoryStore } from '../../src/stores/memory/index.js'
import { gate } from '../../src/testing/store-conformance/fixtures.js'
import { createTestOutbox, type TestOutboxOptions } from '../../src/testing/test-outbox.js'
import { VirtualClock } from '../../src/testing/virtual-clock.js'

/** A writer that is not started, and a worker that claims all of it from the store. */
export function pollerWorld(
  options: TestOutboxOptions = {},
  fault: (method: string) => void | Promise<void> = () => {},
) {
  const clock = new VirtualClock()
  const claims: number[] = []
  const ordered: number[] = []
  const store = memoryStore({
    clock,
    onCall: (method) => {
      if (method === 'claim') claims.push(clock.monotonic())
      if (method === 'claimOrdered') ordered.push(clock.monotonic())
      if (claims.length + ordered.length > 10_000) throw new Error('claims without end')
      return fault(method)
    },
  })
  const writer = createTestOutbox({ store, clock })
  const worker = createTestOutbox({ store, clock, ...options })
  const publish = async (count: number, delayMs = 0) => {
    await writer.transaction((tx) =>
      tx.publishAll(
        Array.from({ length: count }, () => ({ type: 'a' })),
        { delayMs },
      ),
    )
  }
  const stop = async () => {
    const stopping = worker.stop()
    await clock.advance(60_000)
    await stopping
    await writer.stop()
  }
  /** So many events in each of the keys. */
  const publishOrdered = async (count: number, ...keys: string[]) => {
    const events = keys.flatMap((orderingKey) =>
      Array.from({ length: count }, (_, n) => ({ type: 'a', orderingKey, payload: n })),
    )
    await writer.transaction((tx) => tx.publishAll(events))
  }
  /** A process that claims so many, or so many of those whose owner vanished, and is never seen again. */
  const vanishWith = async (limit: number, suspects = 0) => {
    const accept = { names: [], versions: [], prefixes: [''] }
    const bounds = { limit, maxBytes: 1e9, fromSeq: 0, suspects, skipRecentMs: 0 }
    await store.claim({ token: `gone:${clock.monotonic()}`, leaseMs: 100, accept, ...bounds })
    await clock.advance(200)
  }
  return { clock, store, claims, ordered, writer, worker, publish, publishOrdered, vanishWith, stop }
}

/** Its cold queue has little room, and its handler waits for the gate. */
export function crowdedWorld() {
  const poller = pollerWorld({
    dispatcher: { concurrency: 1, coldQueueSize: 10 },
    poller: { batchSize: 5 },
  })
  const run = gate()
  let handled = 0
  poller.worker.on('a', 'note', async () => {
    await run.opened
    handled++
  })
  const leased = async () =>
    (await poller.store.list({ limit: 1_000 })).filter((row) => row.lockedBy !== null).length
  return { ...poller, run, leased, handled: () => handled }
}
