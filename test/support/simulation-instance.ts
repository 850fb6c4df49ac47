import crypto from 'node:crypto'
import { syncBuiltinESMExports } from 'node:module'
import type { Timer } from '../../src/core/clock.js'
import type { TestOutbox } from '../../src/testing/test-outbox.js'
import { VirtualClock } from '../../src/testing/virtual-clock.js'
import type { Runner } from './simulation-runs.js'
import type { Link, Random } from './simulation-store.js'

export interface Instance extends Runner {
  readonly n: number
  readonly outbox: TestOutbox
  readonly link: Link
  readonly clock: MortalClock
  /** What the application has asked of it and waits for. */
  readonly busy: Set<Promise<unknown>>
  started: boolean
}

/** The time of one instance: that of the world, until the instance is no more and none of its timers fires. */
export class MortalClock extends VirtualClock {
  readonly #world: VirtualClock
  readonly #timers = new Set<Timer>()
  #isGone = false

  constructor(world: VirtualClock) {
    super()
    this.#world = world
  }

  override now(): number {
    return this.#world.now()
  }

  override monotonic(): number {
    return this.#world.monotonic()
  }

  override setTimer(callback: () => void, delayMs: number): Timer {
    if (this.#isGone) return { cancel() {}, unref() {} }
    const fire = () => {
      this.#timers.delete(timer)
      callback()
    }
    const timer = this.#world.setTimer(fire, delayMs)
    this.#timers.add(timer)
    const cancel = () => {
      this.#timers.delete(timer)
      timer.cancel()
    }
    return { cancel, unref() {} }
  }

  vanish(): void {
    this.#isGone = true
    for (const timer of this.#timers) timer.cancel()
    this.#timers.clear()
  }
}

/** The id of an instance decides which of them cleans up: it comes from the seed like all other chance. */
export function withSeededIds<T>(random: Random, make: () => T): T {
  const { randomBytes } = crypto
  const replace = (by: typeof randomBytes) => {
    crypto.randomBytes = by
    syncBuiltinESMExports()
  }
  replace(((size: number) => Buffer.from(Array.from({ length: size }, () => random.below(256)))) as never)
  try {
    return make()
  } finally {
    replace(randomBytes)
  }
}
