import type { OutboxStore } from '../../../src/store.js'
import { memoryStore } from '../../../src/stores/memory/index.js'
import { VirtualClock } from '../../../src/testing/index.js'
import { turns } from '../../support/until.js'
import { LEASE_MS, type World } from './world.js'

/** Enough for whatever does not wait for somebody else: nothing in there needs more than some promises. */
const ENOUGH_TURNS = 5

/** One store, since its rows are in it; each session has clients of its own. `spoil` plants a bug. */
export function memoryWorld(spoil: (store: OutboxStore) => OutboxStore = (store) => store): World {
  const clock = new VirtualClock()
  const good = memoryStore({ clock }) as unknown as OutboxStore
  const store = spoil(good)
  let timesPassed = 0
  return {
    name: 'memory',
    observer: good,
    duplicatesLock: false,
    timesPassed: () => timesPassed,
    now: () => clock.now(),
    seat: async () => ({
      store,
      isWaiting: async () => {
        await turns(ENOUGH_TURNS)
        return true
      },
    }),
    passTime: async () => {
      timesPassed++
      clock.step(LEASE_MS + 1)
    },
    clear: async () => {},
    close: async () => {},
  }
}
