import { checkTypes, Subscriptions, type TypeOrDefinition } from '../../bus/subscriptions.js'
import type { ConfirmingPublisher, EventBus, EventHandler, PublishOptions } from '../../bus.js'
import { EventCatalog } from '../../core/catalog.js'
import type { EventDefinition } from '../../core/define-event.js'
import { type PublishableEvent, readEvents, toEnvelope } from '../../core/domain-event.js'
import type { EventEnvelope } from '../../core/envelope.js'
import { AggregateHandlerError, DuplicateEventError } from '../../core/errors.js'
import type { EventId } from '../../core/event-id.js'
import { isThenable } from '../../core/unknown.js'
import { readPublishOptions } from '../../publish-options.js'

/**
 * A bus for unit tests. `publish` runs all handlers of the type sequentially, in the order of registration. If handlers throw,
 * `publish` rejects with an AggregateHandlerError after all handlers have run. The bus records published events for assertions.
 * It ignores delays. It accepts a repeated event id, as brokers do, unless `onDuplicate` is given.
 */
export class InMemoryEventBus implements EventBus, ConfirmingPublisher {
  readonly #catalog: EventCatalog
  readonly #subscriptions: Subscriptions
  #published: EventEnvelope[] = []

  /** The given definitions, and those that are passed to `subscribe`, validate and decode the events of their types. */
  constructor(events: Iterable<EventDefinition> = []) {
    this.#catalog = new EventCatalog(events)
    this.#subscriptions = new Subscriptions(this.#catalog, { keepsProgress: false })
  }

  async publish(event: PublishableEvent, options?: PublishOptions): Promise<EventId> {
    const { onDuplicate } = readPublishOptions(options)
    const envelope = toEnvelope(event, this.#catalog)
    await this.#accept([envelope], onDuplicate)
    return envelope.eventId
  }

  /** Publishes no event if one of them is invalid. */
  async publishAll(events: readonly PublishableEvent[], options?: PublishOptions): Promise<EventId[]> {
    const { onDuplicate } = readPublishOptions(options)
    const { envelopes } = readEvents(events, this.#catalog)
    await this.#accept(envelopes, onDuplicate)
    return envelopes.map((envelope) => envelope.eventId)
  }

  /** Publishes each event separately. Resolves with null or an error per event, as a relay needs it. */
  async send(events: readonly EventEnvelope[]): Promise<readonly (unknown | null)[]> {
    const answers: (unknown | null)[] = []
    for (const event of events) {
      const published = this.publish(event)
      answers.push(
        await published.then(
          () => null,
          (error: unknown) => error,
        ),
      )
    }
    return answers
  }

  /** The memory bus is always reachable. */
  async check(): Promise<void> {}

  /** Subscribes to a type, or to a pattern: 'order.*', '*'. Several handlers may have the same name. */
  subscribe<T>(type: string | EventDefinition<T>, handler: EventHandler<T>): void {
    this.#subscriptions.add([type as TypeOrDefinition], handler as EventHandler)
  }

  /** Calls `subscribe()` for each type. Subscribes to none of them if one is refused. */
  subscribeAll(types: readonly TypeOrDefinition[], handler: EventHandler): void {
    this.#subscriptions.add(checkTypes(types), handler)
  }

  publishedEvents(): readonly EventEnvelope[] {
    return [...this.#published]
  }

  eventsOfType<T = unknown>(type: string | EventDefinition<T>): readonly EventEnvelope<T>[] {
    if (typeof type === 'string') return this.#published.filter(isOfType<T>(type))
    return this.#published.filter(isOfType(type.eventType)).map((event) => event.withDecoder<T>(type.decode))
  }

  eventsForAggregate(aggregateId: string, aggregateType?: string): readonly EventEnvelope[] {
    return this.#published.filter(
      (event) =>
        event.aggregateId === aggregateId &&
        (aggregateType === undefined || event.aggregateType === aggregateType),
    )
  }

  eventCount(): number {
    return this.#published.length
  }

  hasEvent(type: TypeOrDefinition): boolean {
    return this.#published.some(isOfType(nameOf(type)))
  }

  /** Removes the recorded events. Handlers stay subscribed. */
  clear(): void {
    this.#published = []
  }

  async #accept(
    envelopes: readonly EventEnvelope[],
    onDuplicate: PublishOptions['onDuplicate'],
  ): Promise<void> {
    const accepted = onDuplicate ? this.#withoutDuplicates(envelopes, onDuplicate) : envelopes
    for (const envelope of accepted) this.#published.push(envelope)
    const failures: { handler: string; error: unknown }[] = []
    for (const envelope of accepted) {
      for (const handler of this.#subscriptions.of(envelope.eventType)) {
        // Without an await for plain functions, their delivery is synchronous.
        try {
          const result = handler.handle(envelope)
          if (isThenable(result)) await result
        } catch (error) {
          failures.push({ handler: handler.name, error })
        }
      }
    }
    const [first] = accepted
    if (failures.length > 0)
      throw new AggregateHandlerError(failures, accepted.length === 1 ? first?.eventType : undefined)
  }

  #withoutDuplicates(envelopes: readonly EventEnvelope[], onDuplicate: 'error' | 'ignore'): EventEnvelope[] {
    const seen = new Set<string>(this.#published.map((event) => event.eventId))
    const accepted: EventEnvelope[] = []
    const duplicates: string[] = []
    for (const envelope of envelopes) {
      if (seen.has(envelope.eventId)) duplicates.push(envelope.eventId)
      else accepted.push(envelope)
      seen.add(envelope.eventId)
    }
    if (duplicates.length > 0 && onDuplicate === 'error') throw new DuplicateEventError(duplicates)
    return accepted
  }
}

function nameOf(type: TypeOrDefinition): string {
  return typeof type === 'string' ? type : type.eventType
}

function isOfType<T>(eventType: string): (event: EventEnvelope) => event is EventEnvelope<T> {
  return (event): event is EventEnvelope<T> => event.eventType === eventType
}
