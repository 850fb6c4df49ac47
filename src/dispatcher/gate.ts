import { NotStarted } from './outcome.js'

/** More than these are not kept waiting outside of the queues. */
const MOST_WAITING = 100

/** What a handler's calls go through when they cannot all run at once. */
export interface Lane {
  /** Resolves when another event may be taken for this handler; null when that is now. */
  room(): Promise<void> | null
  /** Nothing that waits is started any more. */
  giveBack(): void
  /** Starts what waits for company. */
  flush(): void
}

/** At most `limit` calls of one handler at a time; the others wait for their turn. */
export class Gate implements Lane {
  readonly #limit: number
  #running = 0
  #waiting: { enter(): void; refuse(error: Error): void }[] = []
  #crowded: (() => void)[] = []

  constructor(limit: number) {
    this.#limit = limit
  }

  /** Somebody waits for a turn. */
  get isAwaited(): boolean {
    return this.#waiting.length > 0
  }

  /** True when the way was free; whoever got in has to leave. */
  tryEnter(): boolean {
    if (this.#running >= this.#limit) return false
    this.#running++
    return true
  }

  /** Null when the way is free. Rejects with NotStarted when the turn never comes. */
  enter(): Promise<void> | null {
    if (this.tryEnter()) return null
    return new Promise((enter, refuse) => this.#waiting.push({ enter, refuse }))
  }

  leave(): void {
    const next = this.#waiting.shift()
    if (next) next.enter()
    else this.#running--
    this.#relax()
  }

  room(): Promise<void> | null {
    if (this.#waiting.length < MOST_WAITING) return null
    return new Promise((resolve) => this.#crowded.push(resolve))
  }

  giveBack(): void {
    for (const { refuse } of this.#waiting.splice(0)) refuse(new NotStarted())
    this.#relax()
  }

  flush(): void {}

  #relax(): void {
    if (this.#waiting.length < MOST_WAITING) for (const resolve of this.#crowded.splice(0)) resolve()
  }
}
