import { AftercommitError } from '../../core/errors.js'
import { isBusy } from './driver.js'

/** So long a lock that others hold is waited for. */
export const PATIENCE_MS = 10_000
/** A reason other than a transaction must hold for so long before it is reported. */
const CERTAIN_AFTER_MS = 1_000

const SHORTEST_PAUSE_MS = 1
/** A try costs some microseconds, and who waits longer than the others gets the lock less often. */
const LONGEST_PAUSE_MS = 5

/** Why the file may be locked, other than by a transaction that is going to end. */
export interface Reason {
  readonly error: AftercommitError
  /** Whether waiting is useless. Otherwise the error is reported when the wait is over. */
  readonly isCertain: boolean
}

/**
 * Tries again, by timers and so without blocking anybody, as long as the database says that it is locked. `reason` is asked
 * after each of these failures.
 */
export async function patiently<T>(
  attempt: () => T | Promise<T>,
  reason: () => Reason | null = () => null,
): Promise<T> {
  let beganAt = performance.now()
  const giveUpAt = beganAt + PATIENCE_MS
  /** Begin of the first of the attempts in a row that failed for a certain reason. */
  let certainSince: number | null = null
  for (let pauseMs = SHORTEST_PAUSE_MS; ; pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)) {
    try {
      beganAt = performance.now()
      return await attempt()
    } catch (error) {
      if (!isBusy(error)) throw error
      const found = reason()
      certainSince = found?.isCertain ? (certainSince ?? beganAt) : null
      const now = performance.now()
      if (found && (now >= giveUpAt || (certainSince !== null && now - certainSince >= CERTAIN_AFTER_MS)))
        throw found.error
      if (now >= giveUpAt) throw storeBusy(error)
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
