import { REGISTERED_MS, union } from '../registry.js'
import type { StoreRegistry, TypeFilter } from '../store.js'

export interface SweeperOptions {
  readonly store: Pick<StoreRegistry, 'instances'>
  readonly unroutableGraceMs: number
  /** Returns the types that this process claims. */
  ownFilter(): TypeFilter
  /** Claims old events that `known` does not accept, and settles them as unroutable. Returns their number. */
  claimUnroutable(known: TypeFilter, olderThanMs: number): Promise<number>
}

/** Finds events that no consumer can handle, so that they become dead letters that operators can see. */
export class UnroutableSweeper {
  readonly #options: SweeperOptions

  constructor(options: SweeperOptions) {
    this.#options = options
  }

  /** Returns the number of events found. */
  async sweep(): Promise<number> {
    const { store, ownFilter, unroutableGraceMs, claimUnroutable } = this.#options
    const own = ownFilter()
    // Paused events wait, whether or not they have a handler.
    const paused = own.excludedTypes ?? []
    if (paused.includes('*')) return 0
    const waiting = { names: paused, versions: [], prefixes: [] }
    const registered = (await store.instances(REGISTERED_MS)).map(({ accept }) => accept)
    return claimUnroutable(union([own, waiting, ...registered]), unroutableGraceMs)
  }
}
