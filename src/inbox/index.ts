export {
  type ExactlyOnceContext,
  type ExactlyOnceFunction,
  type ExactlyOnceHandler,
  exactlyOnce,
} from './exactly-once.js'
export type { InboxLogOptions, InboxOptions } from './handler-name.js'
export { idempotent } from './idempotent.js'
export {
  memoryProcessedEvents,
  type OutboxLike,
  type ProcessedEvent,
  type ProcessedEventStore,
  processedEvents,
} from './processed-events.js'
