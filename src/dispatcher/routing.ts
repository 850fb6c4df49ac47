import type { RetryPolicy } from '../core/backoff.js'
import type { EventCatalog } from '../core/catalog.js'
import type { EventDefinition } from '../core/define-event.js'
import type { EventEnvelope } from '../core/envelope.js'
import { HandlerExistsError } from '../core/errors.js'
import { covers, isPattern, prefixOf } from '../core/pattern.js'
import type { HandlerFunction } from '../handler.js'
import { ANY_VERSION, type TypeFilter } from '../store.js'
import type { Batcher } from './batcher.js'
import type { Gate } from './gate.js'

export type { HandlerContext, HandlerFunction } from '../handler.js'

export interface HandlerOptions {
  /** No other handler may match the same event, by whatever route; the second of two whose routes overlap is refused. */
  readonly exclusive?: boolean
  /** A handler that takes longer counts as failed. Default: no limit. */
  readonly timeoutMs?: number
  /** Calls at the same time, in one process. Default: as many as `dispatcher.concurrency` allows. */
  readonly concurrency?: number
  /** In the place of the outbox's own. */
  readonly retry?: HandlerRetry
}

export interface HandlerRetry {
  readonly maxAttempts?: number
  readonly policy?: RetryPolicy
}

export interface Registration {
  readonly name: string
  /** Or what collects its events. */
  readonly handle: HandlerFunction | Batcher
  readonly eventType: string
  readonly aggregateType: string | null
  readonly exclusive: boolean
  readonly timeoutMs: number
  readonly retry?: HandlerRetry | undefined
  /** It takes the payload as it is stored: nothing is decoded for it. */
  readonly isRaw?: boolean
  /** Its calls wait here for their turn, or for company, and keep no worker meanwhile. */
  readonly lane?: Gate | Batcher | undefined
}

const NONE: readonly Registration[] = []

/** Which handlers an event goes to: those of its aggregate and type, of its type, and of patterns that match. */
export class Routes {
  readonly #catalog: EventCatalog
  readonly #all: Registration[] = []
  readonly lanes: (Gate | Batcher)[] = []
  /** Some handler has a lane or a timeout. */
  mayKeepWaiting = false
  #found = new Map<string, Map<string, readonly Registration[]>>()
  #filter: TypeFilter | null = null
  #paused: readonly string[] = []
  /** Their handlers have no room here. */
  #leftOut: readonly string[] = []

  constructor(catalog: EventCatalog) {
    this.#catalog = catalog
  }

  /**
   * Adds all of the registrations and the definitions of their events. Adds nothing if it throws: because a name is taken for
   * the same event, because a handler of the same event is exclusive, or because an event type has another definition.
   */
  add(registrations: readonly Registration[], definitions: readonly EventDefinition[] = []): void {
    const all = [...this.#all]
    for (const registration of registrations) {
      refuseConflict(all, registration)
      all.push(registration)
    }
    this.#catalog.addAll(definitions)
    for (const registration of registrations) this.#add(registration)
    this.#found = new Map()
    this.#filter = null
  }

  #add(registration: Registration): void {
    this.#all.push(registration)
    if (registration.lane) this.lanes.push(registration.lane)
    if (registration.lane || registration.timeoutMs > 0) this.mayKeepWaiting = true
  }

  get isEmpty(): boolean {
    return this.#all.length === 0
  }

  handlersOf(event: Pick<EventEnvelope, 'aggregateType' | 'eventType'>): readonly Registration[] {
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

  /** Event types that are not to be taken; `*` for all. True when that changes anything. */
  pause(types: readonly string[]): boolean {
    if (types.length === this.#paused.length && types.every((type) => this.#paused.includes(type)))
      return false
    this.#paused = [...types]
    this.#filter = null
    return true
  }

  /** How many are in force: event types, and one for all of them together. */
  get pauses(): number {
    return this.#paused.length
  }

  /** Event types that this instance does not take for a while. Nobody else needs to know. */
  leaveOut(types: readonly string[]): void {
    this.#leftOut = types
    this.#filter = null
  }

  get isLeavingOut(): boolean {
    return this.#leftOut.length > 0
  }

  /** Somebody has paused it, for all instances. */
  isPausedForAll(eventType: string): boolean {
    return this.#paused.length > 0 && (this.#paused.includes('*') || this.#paused.includes(eventType))
  }

  /** Nothing of it is taken now: it is paused, or left out. */
  isPaused(eventType: string): boolean {
    return this.isPausedForAll(eventType) || this.#leftOut.includes(eventType)
  }

  /** What this instance takes from the store now. */
  filter(): TypeFilter {
    this.#filter ??= this.#filterExcept([...this.#paused, ...this.#leftOut])
    return this.#filter
  }

  /** The same for the registry. */
  registered(): TypeFilter {
    return this.#filterExcept(this.#paused)
  }

  #filterExcept(except: readonly string[]): TypeFilter {
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
      ...(except.length > 0 ? { except } : {}),
    }
  }

  /** Handler names by route, for the registry. */
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

  #match(aggregateType: string, eventType: string): readonly Registration[] {
    const found = this.#all.filter(
      (one) =>
        (one.aggregateType === null || one.aggregateType === aggregateType) &&
        covers(one.eventType, eventType),
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

/** Some event could go to both. */
function overlap(one: Registration, other: Registration): boolean {
  if (
    one.aggregateType !== null &&
    other.aggregateType !== null &&
    one.aggregateType !== other.aggregateType
  ) {
    return false
  }
  return covers(one.eventType, other.eventType) || covers(other.eventType, one.eventType)
}
