import { AftercommitError } from '../../core/errors.js'
import { isBusy } from './driver.js'

/** So long a lock that others hold is waited for. */
export const PATIENCE_MS = 10_000

const SHORTEST_PAUSE_MS = 1
/** A try costs some microseconds, and who waits longer than the others gets the lock less often. */
const LONGEST_PAUSE_MS = 5

/** Tries again, by timers and so without blocking anybody, as long as the database says that it is locked. */
export async function patiently<T>(attempt: () => T | Promise<T>): Promise<T> {
  const giveUpAt = performance.now() + PATIENCE_MS
  for (let pauseMs = SHORTEST_PAUSE_MS; ; pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)) {
    try {
      return await attempt()
    } catch (error) {
      if (!isBusy(error)) throw error
      if (performance.now() >= giveUpAt) throw storeBusy(error)
    }
    // Not all at the same moment.
    await new Promise((resolve) => setTimeout(resolve, pauseMs * (0.5 + Math.random())))
  }
}

export function storeBusy(cause?: unknown): AftercommitError {
  return new AftercommitError(
    'STORE_BUSY',
    `Another transaction has held the write lock of the SQLite file for ${PATIENCE_MS / 1_000} seconds. Keep transactions short, and wait for nothing in one that needs the database outside of it.`,
    cause === undefined ? undefined : { cause },
  )
}
