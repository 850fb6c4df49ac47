import { AftercommitError } from '../core/errors.js'

/** Resolves when the signal is aborted, at once when it is so already. */
export function whenAborted(signal: AbortSignal): Promise<'stopped'> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve('stopped')
    else signal.addEventListener('abort', () => resolve('stopped'), { once: true })
  })
}

const FAREWELL_MS = 1_000

/** The last thing that a command does. A client that still connects, or a timer of the user's, keeps no process alive. */
export async function leave(close: () => Promise<unknown>): Promise<void> {
  await inTime('closing', close(), FAREWELL_MS).catch(() => {})
  setTimeout(() => process.exit(), FAREWELL_MS).unref()
}

/** Rejects when there is no answer in time; what comes later is dropped. */
export function inTime<T>(what: string, answer: Promise<T>, limitMs: number): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(
      () => reject(new AftercommitError('NO_ANSWER', `${what} did not answer within ${limitMs / 1_000} s.`)),
      limitMs,
    )
    answer.then(resolve, reject).finally(() => clearTimeout(timer))
  })
}
