export { InMemoryEventBus } from '../buses/memory/index.js'
export {
  type MemoryClient,
  type MemoryStore,
  type MemoryStoreOptions,
  memoryStore,
} from '../stores/memory/index.js'
export {
  type BusConformanceOptions,
  type BusNeed,
  type BusWorld,
  busConformance,
  type DeadLetteredMessage,
  type TestedBus,
} from './bus-conformance/index.js'
export type { Match } from './matches.js'
export {
  type CallerTransaction,
  type ConformanceRunner,
  type InsertedRow,
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
export {
  type TransactionConformanceOptions,
  type TransactionNeed,
  type TransactionWorld,
  transactionConformance,
} from './transaction-conformance/index.js'
export { VirtualClock } from './virtual-clock.js'
