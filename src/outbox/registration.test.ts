import { describe, expect, it } from 'vitest'
import { InMemoryEventBus } from '../buses/memory/index.js'
import { fixedDelay, patient } from '../core/backoff.js'
import { defineEvent } from '../core/define-event.js'
import { HandlerExistsError } from '../core/errors.js'
import { createTestOutbox } from '../testing/test-outbox.js'
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
      expect(() => registrationOf(route, 'note', nothing, {})).toThrow(/The patterns are 'order\.\*'/)
      expect(() => registrationOf({ aggregateType: 'a', type: route }, 'note', nothing, {})).toThrow(
        /pattern/,
      )
    },
  )

  it('refuses options that are no options', () => {
    expect(() => registrationOf('a', 'note', nothing, null as never)).toThrow(
      /handler "note": must be an object of settings/,
    )
    expect(on({ exclusive: 'no' })).toThrow(/exclusive of handler "note": must be true or false/)
  })

  it('fills in what is not given: no limits, no timeout, the retries of the outbox', () => {
    const { registration } = registrationOf('a', 'note', nothing, {})
    expect(registration).toMatchObject({ exclusive: false, timeoutMs: 0 })
    expect(registration.concurrency).toBe(Number.POSITIVE_INFINITY)
    expect([registration.batch, registration.retry]).toEqual([null, undefined])
  })

  it('accepts a limit of concurrent calls, and Infinity for no limit', () => {
    expect(on({ concurrency: 3 })().registration.concurrency).toBe(3)
    const unlimited = Number.POSITIVE_INFINITY
    expect(on({ concurrency: unlimited })().registration.concurrency).toBe(unlimited)
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

describe('errors of on(), onBatch() and subscribe()', () => {
  const outbox = () => createTestOutbox()
  const Other = defineEvent<{ id: string }>('order.placed')
  const handler = { name: 'note', handle: nothing }

  it.each<[call: string, run: () => unknown, message: string]>([
    [
      'no function',
      () => outbox().on(Placed, 'note', undefined as never),
      'Invalid setting function of handler "note": must be a function, not undefined. Call on(event, name, handler).',
    ],
    [
      'no name',
      () => outbox().on(Placed, nothing as never, nothing),
      'Invalid setting handler name: must be a string of 1 to 255 characters without control characters, not a function. Call on(event, name, handler).',
    ],
    [
      'an array of events',
      () => outbox().on([Placed] as never, 'note', nothing),
      `Invalid setting event of handler "note": must be a definition made by defineEvent(), or the name of an event type of 1 to 255 characters, such as 'order.placed', not an array.`,
    ],
    [
      'an event',
      () => outbox().on(Placed({ id: '1' }) as never, 'note', nothing),
      'Invalid setting event of handler "note": is an event. Pass the definition that makes it.',
    ],
    [
      'an impossible pattern',
      () => outbox().on('*.placed', 'note', nothing),
      `Invalid setting event of handler "note": "*.placed" is no valid pattern. The patterns are 'order.*' (all types that begin with 'order.') and '*' (all types).`,
    ],
    [
      'a misspelled option',
      () => outbox().on(Placed, 'note', nothing, { concurency: 2 } as object),
      'Invalid setting concurency: handler "note" has no such setting. Did you mean concurrency? Known settings: timeoutMs, exclusive, concurrency, retry.',
    ],
    [
      'a time as text',
      () => outbox().on(Placed, 'note', nothing, { timeoutMs: '5s' as never }),
      'Invalid setting timeoutMs of handler "note": must be a whole number of milliseconds, 0 or more. For 30 seconds, write 30000.',
    ],
    [
      'a batch without a size',
      () => outbox().onBatch(Placed, 'note', {} as never, nothing as never),
      'Invalid setting size of handler "note": must be a whole number from 1 to 1000. Call onBatch(event, name, { size: 100 }, handler).',
    ],
    [
      'a name that is taken',
      () => outbox().on('order.*', 'note', nothing).on(Placed, 'note', nothing),
      'Handler "note" cannot be registered for "order.placed": a handler of this name is already registered for "order.*". Choose another name, or remove one of the two registrations.',
    ],
    [
      'an exclusive handler',
      () => outbox().on('order.*', 'note', nothing, { exclusive: true }).on(Placed, 'log', nothing),
      'Handler "log" cannot be registered for "order.placed": handler "note" is registered for "order.*", and one of the two is exclusive. Remove one of the two handlers, or the option exclusive.',
    ],
    [
      'two definitions of a type',
      () => outbox().on(Placed, 'note', nothing).on(Other, 'log', nothing),
      'Event type "order.placed" is defined twice. Define it once and import that definition everywhere.',
    ],
    [
      'a handler that is a function',
      () => outbox().subscribe(Placed, nothing as never),
      "Invalid setting handler: must be an object, not a function, and have a handle() function. Call subscribe(OrderPlaced, { name: 'send-invoice', handle }).",
    ],
    [
      'a handler object without a name',
      () => outbox().subscribe(Placed, { handle: nothing } as never),
      "Invalid setting handler name: must be a string of 1 to 255 characters without control characters, not undefined. Call subscribe(OrderPlaced, { name: 'send-invoice', handle }).",
    ],
    [
      'one type for subscribeAll()',
      () => outbox().subscribeAll(Placed as never, handler),
      'Invalid setting types: must be an array: subscribeAll([OrderPlaced, OrderPaid], handler).',
    ],
    [
      'a relay to a URL',
      () => outbox().relay('redis://localhost' as never),
      "Invalid setting bus of relay(): must be a bus, not a string. Call relay(redisBus(client), { events: ['order.*'] }).",
    ],
    [
      'a relay without a name',
      () => outbox().relay(new InMemoryEventBus(), { name: '' }),
      'Invalid setting name of relay(): must be a string of 1 to 255 characters without control characters.',
    ],
    [
      'a second relay of the same name',
      () => outbox().relay(new InMemoryEventBus()).relay(new InMemoryEventBus()),
      'Handler "relay" cannot be registered for "*": a handler of this name is already registered for "*". Choose another name, or remove one of the two registrations.',
    ],
  ])('say what is wrong, for which handler, and what to do: %s', (_, run, message) => {
    expect(run).toThrow(expect.objectContaining({ message }))
  })

  it('leave nothing registered, and no definition in the catalog', () => {
    const made = outbox().on('order.*', 'note', nothing)
    expect(() => made.on(Placed, 'note', nothing)).toThrow(HandlerExistsError)
    expect(made.handledTypes).toEqual(['order.*'])
    expect(made.catalog.types()).toEqual([])
  })
})

describe('batchRegistrationOf', () => {
  it('keeps the settings, and allows one batch at a time unless told otherwise', () => {
    const { registration } = onBatch({ size: 5, timeoutMs: 100, exclusive: true })()
    expect(registration).toMatchObject({ timeoutMs: 100, exclusive: true, concurrency: 1 })
    expect(registration.batch).toEqual({ size: 5, waitMs: 50 })
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
