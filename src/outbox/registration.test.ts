import { describe, expect, it } from 'vitest'
import { fixedDelay, patient } from '../core/backoff.js'
import { defineEvent } from '../core/define-event.js'
import { Batcher } from '../dispatcher/batcher.js'
import { Gate } from '../dispatcher/gate.js'
import { batchRegistrationOf, registrationOf } from './registration.js'

const nothing = () => {}
const Placed = defineEvent<{ id: string }>('order.placed')

const on = (options: object) => () => registrationOf('a', 'note', nothing, options)
const onBatch = (options: object) => () =>
  batchRegistrationOf('a', 'note', nothing, options as { size: number })

describe('registrationOf', () => {
  it('takes a name, a definition, or either with an aggregate type', () => {
    const routes = [
      'order.*',
      Placed,
      { aggregateType: 'order', type: 'x' },
      { aggregateType: 'o', type: Placed },
    ]
    const found = routes.map((route) => registrationOf(route, 'note', nothing, {}))
    expect(found.map(({ registration: { eventType, aggregateType } }) => [eventType, aggregateType])).toEqual(
      [
        ['order.*', null],
        ['order.placed', null],
        ['x', 'order'],
        ['order.placed', 'o'],
      ],
    )
    expect(found.map(({ definition }) => definition)).toEqual([undefined, Placed, undefined, Placed])
  })

  it.each(['order*', '*.placed', 'order.*.placed', 'order.**', '**', '.*'])(
    'refuses the pattern %s',
    (route) => {
      expect(() => registrationOf(route, 'note', nothing, {})).toThrow(/there are 'order\.\*'/)
      expect(() => registrationOf({ aggregateType: 'a', type: route }, 'note', nothing, {})).toThrow(
        /pattern/,
      )
    },
  )

  it('refuses options that are no options', () => {
    expect(() => registrationOf('a', 'note', nothing, null as never)).toThrow(
      /handler note: must be an object of settings/,
    )
    expect(on({ exclusive: 'no' })).toThrow(/exclusive: must be true or false/)
  })

  it('fills in what is not given: no limits, no timeout, the retries of the outbox', () => {
    const { registration } = registrationOf('a', 'note', nothing, {})
    expect(registration).toMatchObject({ exclusive: false, timeoutMs: 0 })
    expect([registration.lane, registration.retry]).toEqual([undefined, undefined])
  })

  it('makes a gate of a limit', () => {
    expect(on({ concurrency: 3 })().registration.lane).toBeInstanceOf(Gate)
    expect(on({ concurrency: Number.POSITIVE_INFINITY })().registration.lane).toBeUndefined()
  })

  it.each([
    ['an empty name', ['a', '', nothing]],
    ['a name with a control character', ['a', 'x\ny', nothing]],
    ['no function', ['a', 'note', undefined]],
    ['no event', [undefined, 'note', nothing]],
    ['an empty aggregate type', [{ aggregateType: '', type: 'a' }, 'note', nothing]],
  ])('refuses %s', (_, [route, name, handle]) => {
    expect(() => registrationOf(route as never, name as never, handle as never, {})).toThrow(
      expect.objectContaining({ code: 'INVALID_SETTING' }),
    )
  })

  it.each([
    ['concurrency', { concurrency: 0 }],
    ['concurrency', { concurrency: 1.5 }],
    ['concurrency', { concurrency: Number.NaN }],
    ['timeoutMs', { timeoutMs: -1 }],
    ['timeoutMs', { timeoutMs: Number.POSITIVE_INFINITY }],
    ['retry', { retry: 3 }],
    ['retry', { retry: null }],
    ['retry.maxAttempts', { retry: { maxAttempts: 0 } }],
    ['retry.maxAttempts', { retry: { maxAttempts: Number.POSITIVE_INFINITY } }],
    ['retry.policy', { retry: { policy: {} } }],
    ['retry.policy', { retry: { policy: null } }],
    ['retry.policy.maxAttempts', { retry: { policy: { ...fixedDelay(5), maxAttempts: Number.NaN } } }],
    ['retry.attempts', { retry: { attempts: 3 } }],
    ['concurency', { concurency: 3 }],
    ['size', { size: 3 }],
  ])('refuses a bad %s: %o', (setting, options) => {
    expect(on(options)).toThrow(expect.objectContaining({ code: 'INVALID_SETTING' }))
    expect(on(options)).toThrow(setting)
  })

  it('copies retries with a limit, a policy, or both; the limit of the policy is the default', () => {
    for (const retry of [
      { maxAttempts: 1 },
      { policy: patient() },
      { policy: fixedDelay(1), maxAttempts: 2 },
      {},
    ]) {
      expect(on({ retry })().registration.retry).toMatchObject(retry)
    }
    expect(on({ retry: { policy: patient() } })().registration.retry?.maxAttempts).toBe(25)
  })
})

describe('batchRegistrationOf', () => {
  it('is a handler with a batcher as its lane, whose timeout is the own one of the batch', () => {
    const { registration } = onBatch({ size: 5, timeoutMs: 100, exclusive: true })()
    expect(registration.lane).toBeInstanceOf(Batcher)
    expect(registration).toMatchObject({ timeoutMs: 0, exclusive: true })
  })

  it.each([
    ['size', {}],
    ['size', { size: 0 }],
    ['size', { size: 2.5 }],
    ['size', { size: 1_001 }],
    ['size', undefined],
    ['size', null],
    ['waitMs', { size: 1, waitMs: -1 }],
    ['waitMs', { size: 1, waitMs: Number.NaN }],
    ['concurrency', { size: 1, concurrency: 0 }],
    ['timeoutMs', { size: 1, timeoutMs: -1 }],
    ['wait', { size: 1, wait: 5 }],
  ])('refuses a bad %s: %o', (setting, options) => {
    expect(onBatch(options as object)).toThrow(expect.objectContaining({ code: 'INVALID_SETTING' }))
    expect(onBatch(options as object)).toThrow(setting)
  })

  it('says how it is called when the handler is missing', () => {
    expect(() => batchRegistrationOf('a', 'note', { size: 5 } as never, nothing as never)).toThrow(
      /onBatch\(/,
    )
  })
})
