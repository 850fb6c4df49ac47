import type { SeenInstance } from '../../store.js'

export interface Rates {
  readonly donePerSecond: number
  readonly failedPerSecond: number
  /** Between the last two heartbeats, or still the average since the instances started. */
  readonly basis: 'heartbeats' | 'start'
}

interface Measured {
  readonly at: number
  readonly done: number
  readonly failed: number
  readonly rates: Rates
}

/** Shortest time between two heartbeats from which a rate is computed. */
const LEAST_MS = 100

/**
 * Computes the rates of the running instances from their counters, which are updated by heartbeats. The rate of an instance is
 * the rate between its last two heartbeats, by the database's clock, so it does not depend on how often it is measured.
 */
export class RateMeter {
  #known = new Map<string, Measured>()

  /** Returns `null` if no instance runs. */
  measure(running: readonly SeenInstance[]): Rates | null {
    this.#known = new Map(
      running.map((instance) => [instance.id, measured(instance, this.#known.get(instance.id))]),
    )
    if (running.length === 0) return null
    const all = [...this.#known.values()].map(({ rates }) => rates)
    return {
      donePerSecond: all.reduce((sum, rate) => sum + rate.donePerSecond, 0),
      failedPerSecond: all.reduce((sum, rate) => sum + rate.failedPerSecond, 0),
      basis: all.every(({ basis }) => basis === 'heartbeats') ? 'heartbeats' : 'start',
    }
  }
}

function measured({ startedAt, lastSeenAt, counters }: SeenInstance, known: Measured | undefined): Measured {
  const { done, failed } = counters
  const at = lastSeenAt.getTime()
  const before = known ?? { at: startedAt.getTime(), done: 0, failed: 0 }
  const seconds = (at - before.at) / 1_000
  if (known && at - known.at < LEAST_MS) return known
  const perSecond = (count: number) => (seconds > 0 ? Math.max(0, count / seconds) : 0)
  const rates: Rates = {
    donePerSecond: perSecond(done - before.done),
    failedPerSecond: perSecond(failed - before.failed),
    basis: known ? 'heartbeats' : 'start',
  }
  return { at, done, failed, rates }
}
