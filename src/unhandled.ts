import type { Clock } from './core/clock.js'
import { REGISTERED_MS, union } from './registry.js'
import type { EventStore, TypeFilter, UnhandledPage } from './store.js'

/** An event is younger than this for the time that a deploy or a slow start may take. */
const OLDER_THAN_MS = 60_000
/** Rows per index that a look of an instance reads: a few milliseconds of work, every few seconds. */
const PAGE = 5_000
/** The same for people, who look seldom and wait for the answer. */
const LARGE_PAGE = 100_000
/** Most of the time that looks may take. Dead row versions that PostgreSQL cannot vacuum make even one page slow. */
const SHARE = 1 / 20
/** Types that are kept. Their names come from the table, so their number has no bound. */
const MOST_TYPES = 1_000

type Source = Pick<EventStore, 'instances' | 'unhandled'>

/** Event types without a registered handler among the first pending rows: for people. */
export async function findUnhandled(store: Source): Promise<readonly string[]> {
  const known = await registeredTypes(store)
  const page = await store.unhandled({ known, olderThanMs: OLDER_THAN_MS, limit: LARGE_PAGE, after: null })
  return [...new Set(page.eventTypes)].sort()
}

/** What any consumer has registered lately, started or manual. */
export async function registeredTypes(store: Pick<EventStore, 'instances'>): Promise<TypeFilter> {
  return union((await store.instances(REGISTERED_MS)).map((one) => one.accept))
}

/**
 * Event types that have events older than a minute and no registered handler.
 *
 * There is no index on the type, and counting a backlog of millions again and again would keep the database busy. So
 * each look reads one page of the pending rows and goes on behind it the next time. Without a large backlog, one page
 * holds everything. With one, a type appears after as many looks as there are pages in front of it, and a type that was
 * found stays until a pass over all pages has not met it again.
 */
export class UnhandledTypes {
  readonly #store: Source
  readonly #clock: Pick<Clock, 'monotonic'>
  /** Monotonic time from which the next look may begin. */
  #nextAt = Number.NEGATIVE_INFINITY
  #looking: Promise<readonly string[]> | null = null
  #after: string | null = null
  /** The filter that the pages of this pass were read with. */
  #known = ''
  /** What the last pass over all pages has found, and what this one has found so far. */
  #last: ReadonlySet<string> = new Set()
  #found = new Set<string>()

  constructor(store: Source, clock: Pick<Clock, 'monotonic'>) {
    this.#store = store
    this.#clock = clock
  }

  /** As the last look has left them. Sorted. */
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

/** Where a page of one index has ended: the values of the index's columns in its last row. */
export type Position = readonly (string | number)[]

export interface PageSource {
  /** In front of the first row. */
  readonly start: Position
  /** Reads the rows behind a position. `end` is null when there were fewer than the limit. */
  read(after: Position): Promise<{ readonly eventTypes: readonly string[]; readonly end: Position | null }>
}

/** For stores: one page over several indexes, each from where it has been left, as long as it has more rows. */
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
