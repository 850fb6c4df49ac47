import { RetryAfter, Unrecoverable } from '../../../src/core/errors.js'
import type { Settlement } from '../../../src/store.js'
import { errorOf, type HandlerPlan, type Plan, refusalOf, stepOf } from './plan.js'

/** One delivery, as far as its outcome depends on it. */
export interface Judged {
  readonly type: string
  /** When it was claimed. */
  readonly attempts: number
  readonly handledBy: readonly string[]
  /** What each handler that was called did: null, or its error. */
  readonly results: ReadonlyMap<string, Error | null>
  readonly refusal: Error | null
  /** Something has happened that may have kept handlers from being called. */
  readonly interrupted: boolean
}

interface End {
  readonly outcome: Settlement['outcome']
  readonly attempts: number
  readonly delayMs: number
  readonly handledBy: readonly string[]
}

function handlersOf(plan: Plan, type: string): HandlerPlan[] {
  return plan.handlers.filter((one) => one.type === '*' || one.type === type)
}

/** Those that are still to be called. */
function eligible(plan: Plan, { type, attempts, handledBy }: Judged): HandlerPlan[] {
  return handlersOf(plan, type).filter(
    (one) => !handledBy.includes(one.name) && attempts < (one.maxAttempts ?? plan.maxAttempts),
  )
}

export function isThrough(plan: Plan, judged: Judged): boolean {
  return handlersOf(plan, judged.type).every(
    ({ name }) => judged.handledBy.includes(name) || judged.results.get(name) === null,
  )
}

/** What has to become of a delivery whose handlers were called. */
function endOf(plan: Plan, judged: Judged): End | string {
  const { attempts, results, refusal } = judged
  const every = handlersOf(plan, judged.type)
  const toCall = eligible(plan, judged)
  const nothing = { attempts: 0, delayMs: 0, handledBy: judged.handledBy }
  for (const name of results.keys()) {
    if (!toCall.some((one) => one.name === name)) return `${name} was called, but was not to be`
  }
  const missed = toCall.filter((one) => !results.has(one.name))
  if (missed.length > 0 && !judged.interrupted && !refusal) return `${missed[0]?.name} was not called`
  if (refusal && results.size > 0) return 'handlers were called although the interceptor had refused'

  const handledBy = [...judged.handledBy, ...[...results].filter(([, error]) => !error).map(([name]) => name)]
  const errors = refusal ? [refusal] : [...results.values()].filter((error) => error !== null)
  if (errors.length === 0) {
    if (missed.length > 0 && handledBy.length === judged.handledBy.length)
      return { ...nothing, outcome: 'release' }
    if (missed.length > 0) return { ...nothing, outcome: 'retry', handledBy }
    const isDone = every.every((one) => handledBy.includes(one.name))
    return { ...nothing, outcome: isDone ? 'done' : 'dead', handledBy }
  }
  const isComplete = missed.length === 0 || refusal !== null
  const counted = isComplete && errors.some((error) => !(error instanceof RetryAfter)) ? 1 : 0
  const left = every.filter(
    (one) => !handledBy.includes(one.name) && attempts + counted < (one.maxAttempts ?? plan.maxAttempts),
  )
  if (left.length === 0 || errors.some((error) => error instanceof Unrecoverable)) {
    return { outcome: 'dead', attempts: counted, delayMs: 0, handledBy }
  }
  const delays = left.map(({ name, delayMs }) => {
    const error = results.get(name)
    if (!error) return 0
    return error instanceof RetryAfter ? error.delayMs : (delayMs ?? plan.delayMs)
  })
  const delayMs = Math.max(refusal ? plan.delayMs : 0, ...delays)
  return { outcome: 'retry', attempts: counted, delayMs, handledBy }
}

/** What is wrong with the outcome; null when nothing is. */
export function complaintAbout(
  plan: Plan,
  judged: Judged,
  settlement: Settlement,
  started: boolean,
): string | null {
  if (!started)
    return settlement.outcome === 'release' ? null : `${settlement.outcome} without having been started`
  const expected = endOf(plan, judged)
  if (typeof expected === 'string') return expected
  // The interceptor was not called, because the turn of the event did not come.
  const isGivenBack = judged.interrupted && judged.results.size === 0 && !judged.refusal
  if (isGivenBack && settlement.outcome === 'release') return null
  const found = { attempts: 0, delayMs: 0, handledBy: judged.handledBy, ...settlement }
  const differs =
    found.outcome !== expected.outcome ||
    (found.outcome !== 'done' &&
      (found.attempts !== expected.attempts ||
        found.delayMs !== expected.delayMs ||
        [...found.handledBy].sort().join() !== [...expected.handledBy].sort().join()))
  return differs ? `ended as ${JSON.stringify(found)}, expected ${JSON.stringify(expected)}` : null
}

export interface Fate {
  readonly status: 'DONE' | 'DEAD'
  readonly attempts: number
  readonly handledBy: readonly string[]
  /** `h0 3`: called three times. */
  readonly calls: readonly string[]
}

/** What becomes of an event, step by step, when nothing but its handlers goes wrong. */
export function fateOf(plan: Plan, event: number): Fate {
  const { type } = plan.events[event] as { type: string }
  const calls = new Map<string, number>()
  const told = () => [...calls].map(([name, count]) => `${name} ${count}`).sort()
  let attempts = 0
  let handledBy: readonly string[] = []
  for (;;) {
    const refusal = refusalOf(plan, event, attempts)
    const judged = {
      type,
      attempts,
      handledBy,
      refusal,
      interrupted: false,
      results: new Map<string, Error | null>(),
    }
    for (const handler of refusal ? [] : eligible(plan, judged)) {
      const call = calls.get(handler.name) ?? 0
      calls.set(handler.name, call + 1)
      const step = stepOf(plan, event, handler, call)
      const isLate = handler.batch === null && handler.timeoutMs > 0 && step.takesMs > handler.timeoutMs
      judged.results.set(handler.name, isLate ? new Error('too late') : errorOf(step))
    }
    const end = endOf(plan, judged) as End
    attempts += end.attempts
    if (end.outcome !== 'done') handledBy = [...end.handledBy].sort()
    if (end.outcome === 'done') return { status: 'DONE', attempts, handledBy, calls: told() }
    if (end.outcome === 'dead') return { status: 'DEAD', attempts, handledBy, calls: told() }
  }
}
