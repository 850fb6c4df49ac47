import type { MetricLabels } from './metrics.js'

/** Of each metric, unless the adapter is told otherwise. */
export const MOST_SERIES = 1_000
/** What further event types and handlers are counted under. */
export const OTHER = '_other'

/** What is kept for each set of labels: at most so many, and one more for all the rest. */
export class SeriesByLabels<T> {
  readonly #known = new WeakMap<MetricLabels, T>()
  readonly #byKey = new Map<string, T>()
  readonly #most: number
  readonly #keyOf: (labels: MetricLabels) => string
  readonly #make: (key: string, labels: MetricLabels) => T

  constructor(
    most: number,
    keyOf: (labels: MetricLabels) => string,
    make: (key: string, labels: MetricLabels) => T,
  ) {
    this.#most = most
    this.#keyOf = keyOf
    this.#make = make
  }

  of(labels: MetricLabels): T {
    const known = this.#known.get(labels)
    if (known !== undefined) return known
    const series = this.#find(labels, this.#byKey.size < this.#most)
    this.#known.set(labels, series)
    return series
  }

  values(): IterableIterator<T> {
    return this.#byKey.values()
  }

  #find(labels: MetricLabels, mayGrow: boolean): T {
    const key = this.#keyOf(labels)
    let series = this.#byKey.get(key)
    if (series === undefined && !mayGrow) return this.#find(othersOf(labels), true)
    if (series === undefined) {
      series = this.#make(key, labels)
      this.#byKey.set(key, series)
    }
    return series
  }
}

/** The same labels without their values; whether it failed stays. */
function othersOf(labels: MetricLabels): MetricLabels {
  return {
    ...labels,
    ...(labels.eventType === undefined ? {} : { eventType: OTHER }),
    ...(labels.handler === undefined ? {} : { handler: OTHER }),
  }
}
