import type { Clock } from './core/clock.js'
import { REGISTERED_MS, union } from './registry.js'
import type { OutboxStore, TypeFilter, UnhandledPage } from './store.js'

/** Age from which an event counts. A deploy or a slow start may take this long. */
const OLDER_THAN_MS = 60_000
/** Rows per index that a look of an instance reads: a few milliseconds of work, every few seconds. */
const PAGE = 5_000
/** Rows per index that a look for a person reads: people look seldom and wait for the answer. */
const LARGE_PAGE = 100_000
/** Most of the time that looks may take. Dead row versions that PostgreSQL cannot vacuum make even one page slow. */
const SHARE = 1 / 20
/** Types that are kept. Their names come from the table, so their number has no bound. */
const MOST_TYPES = 1_000

type Source = Pick<OutboxStore, 'instances' | 'unhandled'>

/** Returns the event types without a registered handler among the first pending rows. */
export async function findUnhandled(store: Source): Promise<readonly string[]> {
  const known = await registeredTypes(store)
  const page = await store.unhandled({ known, olderThanMs: OLDER_THAN_MS, limit: LARGE_PAGE, after: null })
  return [...new Set(page.eventTypes)].sort()
}

/** Returns the types that any consumer, started or manual, has registered within the last seven days. */
export async function registeredTypes(store: Pick<OutboxStore, 'instances'>): Promise<TypeFilter> {
  return union((await store.instances(REGISTERED_MS)).map((instance) => instance.accept))
}

/**
 * Event types that have events older than a minute and no registered handler.
 *
 * The event type has no index, and a full count of a backlog of millions would load the database. So each look reads
 * one page of the pending rows, and the next look reads the page behind it. Without a large backlog, one page holds all
 * pending rows. With a large backlog, a type appears after as many looks as there are pages in front of it. A type that
 * was found stays until a pass over all pages has not found it again.
 */
export class UnhandledTypes {
  readonly #store: Source
  readonly #clock: Pick<Clock, 'monotonic'>
  /** Monotonic time from which the next look may begin. */
  #nextAt = Number.NEGATIVE_INFINITY
  #looking: Promise<readonly string[]> | null = null
  #after: string | null = null
  /** Filter with which the pages of this pass were read, as JSON. */
  #known = ''
  /** Types that the last pass over all pages has found. `#found` has the types of the current pass. */
  #last: ReadonlySet<string> = new Set()
  #found = new Set<string>()

  constructor(store: Source, clock: Pick<Clock, 'monotonic'>) {
    this.#store = store
    this.#clock = clock
  }

  /** Types that the looks so far have found, sorted. */
  get types(): readonly string[] {
    return [...new Set([...this.#last, ...this.#found])].sort()
  }

  /** Reads a page, unless the last one took long and was read just now. Calls at the same time share a page. */
  look(): Promise<readonly string[]> {
    const began = this.#clock.monotonic()
    if (began < this.#nextAt) return Promise.resolve(this.types)
    this.#looking ??= this.#look().finally(() => {
      this.#looking = null
      this.#nextAt = began + (this.#clock.monotonic() - began) / SHARE
    })
    return this.#looking
  }

  async #look(): Promise<readonly string[]> {
    const known = await registeredTypes(this.#store)
    const text = JSON.stringify(known)
    if (text !== this.#known) this.#restart(known)
    this.#known = text
    const request = { known, olderThanMs: OLDER_THAN_MS, limit: PAGE, after: this.#after }
    const { eventTypes, after } = await this.#store.unhandled(request)
    for (const type of eventTypes) if (this.#found.size < MOST_TYPES) this.#found.add(type)
    this.#after = after
    if (after === null) {
      this.#last = this.#found
      this.#found = new Set()
    }
    return this.types
  }

  /** Handlers came or went. A type that has a handler now is dropped before the pages are read again. */
  #restart({ names, prefixes }: TypeFilter): void {
    const isKnown = (type: string) =>
      names.includes(type) || prefixes.some((prefix) => type.startsWith(prefix))
    this.#last = new Set([...this.#last, ...this.#found].filter((type) => !isKnown(type)))
    this.#found = new Set()
    this.#after = null
  }
}

/** End of a page of one index: the values of the index's columns in the last row of the page. */
export type Position = readonly (string | number)[]

export interface PageSource {
  /** Position in front of the first row. */
  readonly start: Position
  /** Reads the rows behind a position. `end` is null when there were fewer than the limit. */
  read(after: Position): Promise<{ readonly eventTypes: readonly string[]; readonly end: Position | null }>
}

/** Reads one page over several indexes of a store. Each index goes on where its last page ended, until its end. */
export async function pageOver(sources: readonly PageSource[], after: string | null): Promise<UnhandledPage> {
  const begin: readonly (Position | null)[] =
    after === null ? sources.map(({ start }) => start) : JSON.parse(after)
  const eventTypes: string[] = []
  const ends: (Position | null)[] = []
  for (const [at, source] of sources.entries()) {
    const from = begin[at] ?? null
    const page = from === null ? null : await source.read(from)
    if (page) eventTypes.push(...page.eventTypes)
    ends.push(page?.end ?? null)
  }
  return { eventTypes, after: ends.every((end) => end === null) ? null : JSON.stringify(ends) }
}
