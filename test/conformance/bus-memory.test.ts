import { afterEach, beforeEach, describe, it } from 'vitest'
import { InMemoryEventBus } from '../../src/buses/memory/index.js'
import { busConformance } from '../../src/testing/bus-conformance/index.js'

busConformance({
  name: 'InMemoryEventBus',
  runner: { describe, it, beforeEach, afterEach },
  createWorld: async () => {
    const bus = new InMemoryEventBus()
    return { createBus: async () => bus, dispose: async () => {} }
  },
})
