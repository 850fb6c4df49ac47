export { InMemoryEventBus } from '../buses/memory.js'
export {
  type MemoryClient,
  type MemoryStore,
  type MemoryStoreOptions,
  memoryStore,
} from '../stores/memory/index.js'
export type { Match } from './matches.js'
export {
  type CallerTransaction,
  type ConformanceRunner,
  type Need,
  type StoreConformanceOptions,
  type StoreUnderTest,
  storeConformance,
} from './store-conformance/index.js'
export {
  createTestOutbox,
  type Expectation,
  expectPublished,
  TestOutbox,
  type TestOutboxOptions,
} from './test-outbox.js'
export { VirtualClock } from './virtual-clock.js'
