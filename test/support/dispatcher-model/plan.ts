import fc from 'fast-check'
import { RetryAfter, Unrecoverable } from '../../../src/core/errors.js'

export const LEASE_MS = 150
const TYPES = ['x', 'y'] as const

/** What one call of a handler does. */
export interface Step {
  readonly kind: 'ok' | 'fail' | 'later' | 'hopeless'
  readonly takesMs: number
}

export interface HandlerPlan {
  readonly name: string
  readonly at: number
  readonly type: string
  readonly maxAttempts: number | null
  readonly delayMs: number | null
  /** Of calls, or of batches; null for none of its own. */
  readonly concurrency: number | null
  readonly timeoutMs: number
  readonly batch: { readonly size: number; readonly waitMs: number } | null
}

export type Action = { readonly after: number } /** Its answer takes a while. */ & (
  | { readonly kind: 'claim' | 'claimOrdered'; readonly count: number; readonly lateMs: number }
  | { readonly kind: 'hot'; readonly event: number }
  | { readonly kind: 'pause' | 'resume'; readonly type: string }
  | { readonly kind: 'stop' | 'start' }
  | { readonly kind: 'steal'; readonly event: number; readonly how: 'done' | 'free'; readonly tells: boolean }
  | { readonly kind: 'outage'; readonly how: ('before' | 'after')[] }
  | { readonly kind: 'cutOff' | 'hurry'; readonly ms: number }
)

export interface Plan {
  readonly concurrency: number
  readonly maxAttempts: number
  readonly delayMs: number
  /** How many may wait for one handler; null for as many as by default. */
  readonly room: number | null
  readonly handlers: readonly HandlerPlan[]
  readonly events: readonly { readonly key: string | null; readonly type: string; readonly delayMs: number }[]
  readonly steps: readonly Step[]
  /** Whether the interceptor refuses; none: there is no interceptor. */
  readonly refusals: readonly boolean[]
  /** The first error of a batch fails all of it. */
  readonly batchesThrow: boolean
  /** None: nothing but claims happens. */
  readonly actions: readonly Action[]
}

/** What that call of the handler does; the same for every run of the plan. Sooner or later all goes well. */
export function stepOf(plan: Plan, event: number, handler: HandlerPlan, call: number): Step {
  const step = plan.steps[(event * 7 + handler.at * 3 + call) % plan.steps.length]
  return step && call < 8 ? step : { kind: 'ok', takesMs: 0 }
}

export function errorOf({ kind }: Step): Error | null {
  if (kind === 'ok') return null
  if (kind === 'later') return new RetryAfter(30)
  return kind === 'hopeless' ? new Unrecoverable() : new Error('broken')
}

export function refusalOf({ refusals }: Plan, event: number, attempts: number): Error | null {
  return refusals[(event * 5 + attempts) % refusals.length] ? new Error('not now') : null
}

const small = (max: number, min = 0) => fc.integer({ min, max })
const maybe = <T>(value: fc.Arbitrary<T>) => fc.option(value, { nil: null, freq: 2 })

const step: fc.Arbitrary<Step> = fc.record({
  kind: fc.oneof(
    { weight: 10, arbitrary: fc.constant('ok' as const) },
    { weight: 4, arbitrary: fc.constant('fail' as const) },
    { weight: 2, arbitrary: fc.constant('later' as const) },
    { weight: 1, arbitrary: fc.constant('hopeless' as const) },
  ),
  takesMs: fc.constantFrom(0, 0, 0, 1, 7, 25, 90, 400),
})

const handler = fc.record({
  type: fc.constantFrom('*', '*', ...TYPES),
  maxAttempts: maybe(small(4, 1)),
  delayMs: maybe(small(20, 1)),
  concurrency: maybe(small(2, 1)),
  timeoutMs: fc.constantFrom(0, 0, 50),
  batch: maybe(fc.record({ size: small(3, 1), waitMs: small(30) })),
})

const after = fc.constantFrom(0, 0, 1, 6, 20, 60, 200)
const event = small(11)
const type = fc.constantFrom(...TYPES)
const count = small(6, 1)
const lateMs = fc.constantFrom(0, 0, 0, 6, 40)
const kind = <T extends string>(...kinds: T[]) => fc.constantFrom(...kinds)
const trouble: fc.Arbitrary<Action> = fc.oneof(
  fc.record({ after, kind: kind('pause', 'resume'), type }),
  fc.record({ after, kind: kind('stop', 'start') }),
  fc.record({ after, kind: kind('steal'), event, how: kind('done', 'free'), tells: fc.boolean() }),
  fc.record({
    after,
    kind: kind('outage'),
    how: fc.array(kind('before', 'after'), { minLength: 1, maxLength: 3 }),
  }),
  fc.record({ after, kind: kind('cutOff', 'hurry'), ms: fc.constantFrom(20, 200, 400) }),
)
const action: fc.Arbitrary<Action> = fc.oneof(
  { weight: 3, arbitrary: fc.record({ after, kind: kind('claim', 'claimOrdered'), count, lateMs }) },
  { weight: 1, arbitrary: fc.record({ after, kind: kind('hot'), event }) },
  { weight: 3, arbitrary: trouble },
)

const base = fc.record({
  concurrency: small(3, 1),
  maxAttempts: small(4, 1),
  delayMs: small(20),
  room: maybe(small(3, 1)),
  handlers: fc
    .array(handler, { minLength: 1, maxLength: 4 })
    .map((all) => all.map((one, at) => ({ ...one, at, name: `h${at}`, type: at === 0 ? '*' : one.type }))),
  events: fc.array(
    fc.record({ key: fc.constantFrom(null, 'k', 'k', 'l'), type, delayMs: fc.constantFrom(0, 0, 50) }),
    {
      minLength: 1,
      maxLength: 12,
      size: 'max',
    },
  ),
  steps: fc.array(step, { minLength: 1, maxLength: 30, size: 'max' }),
  refusals: fc.oneof(fc.constant([]), fc.array(fc.boolean(), { minLength: 1, maxLength: 9 })),
})

/** Handlers fail and take their time, and nothing else happens. */
export const calmPlan: fc.Arbitrary<Plan> = base.map((plan) => ({
  ...plan,
  batchesThrow: false,
  actions: [],
}))

/** Everything at once. */
export const stormyPlan: fc.Arbitrary<Plan> = fc
  .tuple(base, fc.boolean(), fc.array(action, { minLength: 1, maxLength: 30, size: 'max' }))
  .map(([plan, batchesThrow, actions]) => ({ ...plan, batchesThrow, actions }))
