import { createOutbox, type OutboxStore, silentLogger } from '../../src/index.js'
import { type MemoryClient, memoryStore } from '../../src/stores/memory/index.js'
import { VirtualClock } from '../../src/testing/index.js'

/** An outbox whose clock stands still, so that a ring that has to wait goes out only when somebody closes the doorbell. */
export function outboxWithRings() {
  const clock = new VirtualClock()
  const store: OutboxStore<MemoryClient> = memoryStore({ clock })
  const rings: unknown[] = []
  const ring = store.ring.bind(store)
  store.ring = async (what) => {
    rings.push(what)
    await ring(what)
  }
  return { outbox: createOutbox({ store, clock, logger: silentLogger }), store, clock, rings }
}
