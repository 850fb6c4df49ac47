export {
  type ExactlyOnceContext,
  type ExactlyOnceFunction,
  type ExactlyOnceHandler,
  exactlyOnce,
} from './exactly-once.js'
export type { InboxOptions } from './handler-name.js'
export { idempotent } from './idempotent.js'
export {
  memoryProcessedEvents,
  type OutboxLike,
  type ProcessedEventStore,
  processedEvents,
} from './processed-events.js'
