import { AssertionError } from 'node:assert'
import type { InMemoryEventBus } from '../buses/memory/index.js'
import type { EventDefinition } from '../core/define-event.js'
import { EventEnvelope } from '../core/envelope.js'
import { silentLogger } from '../observe/logger.js'
import type { OutboxOptions } from '../outbox/settings.js'
import { Outbox } from '../outbox.js'
import type { EventFilter, EventRecord } from '../store.js'
import { type MemoryClient, type MemoryStore, memoryStore } from '../stores/memory/index.js'
import { type Match, matches } from './matches.js'
import { VirtualClock } from './virtual-clock.js'

export interface TestOutboxOptions extends Omit<OutboxOptions<MemoryClient>, 'store' | 'clock'> {
  /** To share a "database" between outboxes; give its clock too. */
  readonly store?: MemoryStore
  readonly clock?: VirtualClock
}

/** An outbox on a memory store and a virtual clock, without log output. Needs no start: `drain()` delivers. */
export class TestOutbox extends Outbox<MemoryClient> {
  override readonly store: MemoryStore
  readonly clock: VirtualClock

  constructor(options: TestOutboxOptions = {}) {
    const clock = options.clock ?? new VirtualClock()
    const store = options.store ?? memoryStore({ clock })
    super({ logger: silentLogger, ...options, store, clock })
    this.store = store
    this.clock = clock
  }

  /** Committed events in the order of their `seq`, delivered or not; of one type when given. */
  async published<T = unknown>(type?: string | EventDefinition<T>): Promise<EventEnvelope<T>[]> {
    const decode = typeof type === 'object' || typeof type === 'function' ? type.decode : undefined
    const eventType = typeof type === 'string' ? type : type?.eventType
    const records = await this.records({ eventType })
    return records.map((record) =>
      EventEnvelope.fromStored<T>(record, decode ?? this.catalog.decoderFor(record.eventType)),
    )
  }

  /** The rows themselves: status, attempts, failures. */
  records(filter: EventFilter = {}): Promise<readonly EventRecord[]> {
    return this.store.list({ limit: Number.POSITIVE_INFINITY, ...filter })
  }
}

export function createTestOutbox(options: TestOutboxOptions = {}): TestOutbox {
  return new TestOutbox(options)
}

/** A part of the payload, or a function that looks at the whole event. */
export type Expectation<T> = Match<T> | ((event: EventEnvelope<T>) => boolean)

/**
 * The first published event of that type whose payload contains what is given, or for which the function is true.
 * Rejects with an AssertionError that shows what was published instead.
 *
 * @example
 * const event = await expectPublished(outbox, OrderPlaced, { orderId: 'o-1' })
 */
export async function expectPublished<T>(
  source: TestOutbox | InMemoryEventBus,
  type: string | EventDefinition<T>,
  match?: Expectation<T>,
): Promise<EventEnvelope<T>> {
  const ofType: readonly EventEnvelope<T>[] =
    source instanceof Outbox ? await source.published(type) : source.eventsOfType(type)
  const found = ofType.find((event) => isMatch(event, match))
  if (found) return found
  const eventType = typeof type === 'string' ? type : type.eventType
  const all = source instanceof Outbox ? await source.published() : source.publishedEvents()
  throw new AssertionError({ message: complaint(eventType, ofType, all), stackStartFn: expectPublished })
}

function isMatch<T>(event: EventEnvelope<T>, match: Expectation<T> | undefined): boolean {
  if (match === undefined) return true
  return isPredicate(match) ? match(event) : matches(event.payload, match)
}

function isPredicate<T>(match: Expectation<T>): match is (event: EventEnvelope<T>) => boolean {
  return typeof match === 'function'
}

function complaint(
  eventType: string,
  ofType: readonly EventEnvelope[],
  all: readonly EventEnvelope[],
): string {
  if (ofType.length > 0) {
    const payloads = ofType.slice(0, 10).map((event) => `  ${(event.payloadText ?? '(bytes)').slice(0, 500)}`)
    return `No ${eventType} matches. Published with the payloads:\n${payloads.join('\n')}`
  }
  const types = [...new Set(all.map((event) => event.eventType))]
  return `No ${eventType} was published and committed. Published: ${types.join(', ') || 'nothing'}.`
}
