import { until as poll } from './until.js'

/** Resolves once the condition holds; rejects, naming what was waited for, when it does not in time. */
export function until(
  what: string,
  condition: () => boolean | Promise<boolean>,
  timeoutMs = 10_000,
): Promise<void> {
  return poll(condition, { what, timeoutMs })
}

/** Rejects when the promise is still pending after that time. */
export async function within<T>(what: string, promise: Promise<T>, timeoutMs: number): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not within ${timeoutMs} ms: ${what}`)), timeoutMs)
  })
  try {
    return await Promise.race([promise, late])
  } finally {
    clearTimeout(timer)
  }
}

export interface Signal<T = void> {
  readonly promise: Promise<T>
  readonly given: boolean
  give(value: T): void
}

/** A promise that the test resolves itself. */
export function signal<T = void>(): Signal<T> {
  let resolve: (value: T) => void = () => {}
  const state = {
    promise: new Promise<T>((done) => {
      resolve = done
    }),
    given: false,
    give: (value: T) => {
      state.given = true
      resolve(value)
    },
  }
  return state
}
