import type { RetryPolicy } from '../core/backoff.js'
import type { EventCatalog } from '../core/catalog.js'
import type { EventDefinition } from '../core/define-event.js'
import type { EventEnvelope } from '../core/envelope.js'
import { HandlerExistsError } from '../core/errors.js'
import { covers, isPattern, prefixOf } from '../core/pattern.js'
import type { BatchFunction, HandlerFunction } from '../handler.js'
import { ANY_VERSION, type TypeFilter } from '../store.js'
import type { HandlerQueue } from './handler-queue.js'

export interface HandlerOptions {
  /** Whether no other handler may match the same event. Of two handlers whose routes overlap, the second is refused. */
  readonly exclusive?: boolean
  /** A handler that takes longer counts as failed. Default: no limit. */
  readonly timeoutMs?: number
  /** Calls at the same time in one process. Default: as many as `dispatcher.concurrency` allows. */
  readonly concurrency?: number
  /** Replaces the retry settings of the outbox. */
  readonly retry?: HandlerRetry
}

export interface HandlerRetry {
  readonly maxAttempts?: number
  readonly policy?: RetryPolicy
}

interface RegistrationBase {
  readonly name: string
  readonly eventType: string
  readonly aggregateType: string | null
  readonly exclusive: boolean
  readonly timeoutMs: number
  /** `Infinity` for a handler that shares the worker slots. */
  readonly concurrency: number
  readonly retry?: HandlerRetry | undefined
  /** Whether the handler reads the payload as it is stored, so that it is not decoded. */
  readonly isRaw?: boolean
}

interface HandlerRegistration extends RegistrationBase {
  readonly handle: HandlerFunction
  readonly batch: null
}

export interface BatchRegistration extends RegistrationBase {
  readonly handle: BatchFunction
  readonly batch: { readonly size: number; readonly waitMs: number }
}

/** Checked arguments of `on()` or `onBatch()`. */
export type Registration = HandlerRegistration | BatchRegistration

/** Registered handler. A handler with batches or a limit of its own has a queue. */
export type Handler = Registration & { readonly queue: HandlerQueue | undefined }

const NONE: readonly Handler[] = []

/** Finds the handlers of an event: those of its aggregate and type, of its type, and of matching patterns. */
export class Routes {
  readonly #catalog: EventCatalog
  readonly #all: Handler[] = []
  readonly queues: HandlerQueue[] = []
  /** Whether any handler has a queue or a timeout. Only then can a delivery give up its worker slot while it runs. */
  haveQueuesOrTimeouts = false
  #found = new Map<string, Map<string, readonly Handler[]>>()
  #filter: TypeFilter | null = null
  #paused: readonly string[] = []
  /** Types with a handler whose queue is saturated. */
  #saturated: readonly string[] = []

  constructor(catalog: EventCatalog) {
    this.#catalog = catalog
  }

  /**
   * Adds all of the handlers and the definitions of their events. Adds nothing if it throws: because a name is taken for the
   * same event, because a handler of the same event is exclusive, or because an event type has another definition.
   */
  add(handlers: readonly Handler[], definitions: readonly EventDefinition[] = []): void {
    const all = [...this.#all]
    for (const handler of handlers) {
      refuseConflict(all, handler)
      all.push(handler)
    }
    this.#catalog.addAll(definitions)
    for (const handler of handlers) this.#add(handler)
    this.#found = new Map()
    this.#filter = null
  }

  #add(handler: Handler): void {
    this.#all.push(handler)
    if (handler.queue) this.queues.push(handler.queue)
    if (handler.queue || handler.timeoutMs > 0) this.haveQueuesOrTimeouts = true
  }

  get isEmpty(): boolean {
    return this.#all.length === 0
  }

  handlersOf(event: Pick<EventEnvelope, 'aggregateType' | 'eventType'>): readonly Handler[] {
    let byType = this.#found.get(event.aggregateType)
    if (!byType) {
      if (this.#found.size > 1000) this.#found.clear()
      byType = new Map()
      this.#found.set(event.aggregateType, byType)
    }
    let found = byType.get(event.eventType)
    if (!found) {
      found = this.#match(event.aggregateType, event.eventType)
      if (byType.size > 10_000) byType.clear()
      byType.set(event.eventType, found)
    }
    return found
  }

  /** Replaces the paused event types; `*` for all. Returns whether anything changed. */
  setPausedTypes(types: readonly string[]): boolean {
    if (types.length === this.#paused.length && types.every((type) => this.#paused.includes(type)))
      return false
    this.#paused = [...types]
    this.#filter = null
    return true
  }

  /** Number of pauses in force. A pause of all types counts as one. */
  get pauses(): number {
    return this.#paused.length
  }

  /** Replaces the event types that this instance does not claim for a while, because a handler queue is saturated. */
  setSaturatedTypes(types: readonly string[]): void {
    this.#saturated = types
    this.#filter = null
  }

  get hasSaturatedTypes(): boolean {
    return this.#saturated.length > 0
  }

  /** Whether an operator has paused the type for all instances. */
  isPaused(eventType: string): boolean {
    return this.#paused.length > 0 && (this.#paused.includes('*') || this.#paused.includes(eventType))
  }

  /** Whether this instance takes events of the type now. */
  isClaimable(eventType: string): boolean {
    return !this.isPaused(eventType) && !this.#saturated.includes(eventType)
  }

  /** Types that this instance claims now. */
  filter(): TypeFilter {
    this.#filter ??= this.#filterWithout([...this.#paused, ...this.#saturated])
    return this.#filter
  }

  /** Types that the registry shows for this instance. */
  registered(): TypeFilter {
    return this.#filterWithout(this.#paused)
  }

  #filterWithout(excludedTypes: readonly string[]): TypeFilter {
    const versions = new Map<string, number>()
    const prefixes = new Set<string>()
    const named = (type: string, aggregateType: string | null) =>
      aggregateType === null ? type : `${aggregateType}\x1f${type}`
    const take = (type: string, aggregateType: string | null) =>
      versions.set(named(type, aggregateType), this.#catalog.get(type)?.version ?? ANY_VERSION)
    for (const { eventType, aggregateType } of this.#all) {
      if (!isPattern(eventType)) take(eventType, aggregateType)
      else {
        prefixes.add(named(prefixOf(eventType), aggregateType))
        for (const type of this.#catalog.types()) if (covers(eventType, type)) take(type, aggregateType)
      }
    }
    return {
      names: [...versions.keys()],
      versions: [...versions.values()],
      prefixes: [...prefixes],
      ...(excludedTypes.length > 0 ? { excludedTypes } : {}),
    }
  }

  /** Handler names by route, as the registry shows them. */
  summary(): Record<string, string[]> {
    const routes = new Map<string, string[]>()
    for (const { eventType, aggregateType, name } of this.#all) {
      const route = aggregateType === null ? eventType : `${aggregateType}/${eventType}`
      const names = routes.get(route)
      if (names) names.push(name)
      else routes.set(route, [name])
    }
    return Object.fromEntries(routes)
  }

  #match(aggregateType: string, eventType: string): readonly Handler[] {
    const found = this.#all.filter(
      (handler) =>
        (handler.aggregateType === null || handler.aggregateType === aggregateType) &&
        covers(handler.eventType, eventType),
    )
    return found.length > 0 ? found : NONE
  }
}

function refuseConflict(all: readonly Registration[], added: Registration): void {
  for (const other of all) {
    if (!overlap(other, added)) continue
    const exclusive = other.exclusive || added.exclusive
    if (exclusive || other.name === added.name) {
      throw new HandlerExistsError(added.name, added.eventType, other, { exclusive })
    }
  }
}

/** Whether an event exists that would go to both. */
function overlap(a: Registration, b: Registration): boolean {
  if (a.aggregateType !== null && b.aggregateType !== null && a.aggregateType !== b.aggregateType)
    return false
  return covers(a.eventType, b.eventType) || covers(b.eventType, a.eventType)
}
