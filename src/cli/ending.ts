import { AftercommitError } from '../core/errors.js'
import type { Database } from './database.js'
import { InterruptedError } from './errors.js'

/** Resolves when the signal is aborted, at once when it is so already. */
export function whenAborted(signal: AbortSignal): Promise<'stopped'> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve('stopped')
    else signal.addEventListener('abort', () => resolve('stopped'), { once: true })
  })
}

/** The answer, unless a signal comes first: nobody at a shell wants to wait for a server that is silent. */
export function unlessAborted<T>(answer: Promise<T>, signal: AbortSignal): Promise<T> {
  const stopped = whenAborted(signal).then(() => {
    throw new InterruptedError()
  })
  return Promise.race([answer, stopped])
}

/** Also for a server that has to wake up first. */
const REACH_MS = 30_000

/** Resolves with the first answer of the database. Some servers take a connection and then say nothing. */
export async function reach(database: Database): Promise<'reached'> {
  await inTime('The database', database.now(), REACH_MS)
  return 'reached'
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
