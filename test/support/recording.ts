import type { CounterName, GaugeName, LogFields, Logger, LogLevel, MetricsExporter } from '../../src/index.js'

export interface LogLine {
  readonly level: LogLevel
  readonly fields: LogFields
  readonly message: string
}

/** Keeps every line instead of writing it. */
export function recordingLogger(): Logger & { readonly lines: LogLine[] } {
  const lines: LogLine[] = []
  const at = (level: LogLevel) => (fields: LogFields, message: string) =>
    void lines.push({ level, fields, message })
  return { lines, debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') }
}

interface RecordingMetrics extends MetricsExporter {
  total(name: CounterName): number
  /** Values by event type; without one, the key is empty. */
  gauges(name: GaugeName): Readonly<Record<string, number>>
}

/** Adds up the counters, and keeps the last value of each gauge. */
export function recordingMetrics(): RecordingMetrics {
  const totals = new Map<CounterName, number>()
  const gauges = new Map<GaugeName, Record<string, number>>()
  return {
    count: (name, by) => void totals.set(name, (totals.get(name) ?? 0) + by),
    gauge: (name, value, { eventType = '' } = {}) =>
      void gauges.set(name, { ...gauges.get(name), [eventType]: value }),
    duration: () => {},
    total: (name) => totals.get(name) ?? 0,
    gauges: (name) => gauges.get(name) ?? {},
  }
}

/** The same store, with a count of the calls of each method that have come back. */
export function counted<Store extends object>(
  store: Store,
): { store: Store; calls(method: keyof Store): number } {
  const calls = new Map<PropertyKey, number>()
  const watched = new Proxy(store, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name, target)
      if (typeof value !== 'function') return value
      return (...args: unknown[]): unknown => {
        const note = () => void calls.set(name, (calls.get(name) ?? 0) + 1)
        const result: unknown = value.apply(target, args)
        if (result instanceof Promise) result.then(note, note)
        else note()
        return result
      }
    },
  })
  return { store: watched, calls: (method) => calls.get(method) ?? 0 }
}
