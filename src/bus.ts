import type { EventDefinition } from './core/define-event.js'
import type { PublishableEvent } from './core/domain-event.js'
import type { EventEnvelope } from './core/envelope.js'
import type { EventId } from './core/event-id.js'

export interface PublishOptions {
  /** Not before this much later. */
  readonly delayMs?: number
  /** Not before this moment. */
  readonly deliverAt?: Date
  /** What to do with an id that exists already: `error` (default) throws DuplicateEventError. */
  readonly onDuplicate?: 'error' | 'ignore'
}

/** What use cases depend on: the outbox in production, an InMemoryEventBus in a unit test. */
export interface EventPublisher {
  publish(event: PublishableEvent, options?: PublishOptions): Promise<EventId>
  /** All or nothing where the implementation can. */
  publishAll(events: readonly PublishableEvent[], options?: PublishOptions): Promise<EventId[]>
}

export interface EventHandler<T = unknown> {
  readonly name: string
  handle(event: EventEnvelope<T>): unknown
}

export interface EventSubscriber {
  subscribe<T>(type: string | EventDefinition<T>, handler: EventHandler<T>): void
  subscribeAll(types: readonly (string | EventDefinition)[], handler: EventHandler): void
}

export interface EventBus extends EventPublisher, EventSubscriber {}
