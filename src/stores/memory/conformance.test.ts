import { afterEach, beforeEach, describe, it } from 'vitest'
import { insertInto } from '../../../test/support/memory-insert.js'
import { type Clock, systemClock } from '../../core/clock.js'
import { storeConformance } from '../../testing/store-conformance/index.js'
import { VirtualClock } from '../../testing/virtual-clock.js'
import { memoryStore } from './index.js'

const runner = { describe, it, beforeEach, afterEach }

function subject(clock: Clock) {
  const store = memoryStore({ clock })
  return {
    store,
    dispose: async () => {},
    insert: insertInto(store),
    begin: async () => {
      const client = store.connect()
      client.begin()
      return { client, commit: async () => client.commit(), rollback: async () => client.rollback() }
    },
  }
}

storeConformance({
  name: 'memory, virtual clock',
  runner,
  createStore: async () => {
    const clock = new VirtualClock()
    return { ...subject(clock), advance: (ms) => clock.advance(ms) }
  },
})

storeConformance({
  name: 'memory, system clock',
  runner,
  createStore: async () => subject(systemClock),
})
