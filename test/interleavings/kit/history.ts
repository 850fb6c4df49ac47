import { type Act, after, type State } from './model.js'

/** A call from its start to its end, both by a counter of what the test has seen. */
export interface Call {
  readonly act: Act
  readonly start: number
  readonly end: number
  /** Something outside of the history held locks while it ran. */
  readonly mayMiss: boolean
}

/**
 * Every state in which the calls can have left the rows. There is one only if the calls can be put one after the other,
 * none before one that had ended when it began, so that the contract allows each answer. None means that the store is wrong.
 */
export function outcomesOf(state: State, calls: readonly Call[]): State[] {
  if (calls.length === 0) return [state]
  const first = calls.filter((call) => !calls.some((other) => other !== call && other.end < call.start))
  return first.flatMap((call) => {
    const next = after(state, call.act, call.mayMiss)
    const rest = calls.filter((other) => other !== call)
    return next ? outcomesOf(next, rest) : []
  })
}

/** The same calls, each with whether another one ran beside it. */
export function withOverlaps(calls: readonly Call[]): Call[] {
  return calls.map((call) => ({
    ...call,
    mayMiss:
      call.mayMiss ||
      calls.some((other) => other !== call && other.start < call.end && other.end > call.start),
  }))
}
