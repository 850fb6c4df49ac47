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

/** A bus that can tell for each event whether it was taken; what a relay publishes to. */
export interface ConfirmingPublisher {
  /**
   * In this order, pipelined. Resolves when each of them has its answer: null when the broker has confirmed it, a
   * BrokerUnavailableError when it or the way to it failed, and anything else when it refused this event. Never rejects.
   */
  send(events: readonly EventEnvelope[]): Promise<readonly (unknown | null)[]>
  /** Resolves when the broker takes messages, and rejects while it does not. */
  check(): Promise<void>
}
