import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { PaperTransport } from '../../test/support/paper-transport.js'
import { BrokerBus } from '../bus/broker-bus.js'
import { readBusOptions } from '../bus/settings.js'
import type { PublishOptions } from '../bus.js'
import { InMemoryEventBus } from '../buses/memory/index.js'
import { defineEvent } from '../core/define-event.js'
import type { PublishableEvent } from '../core/domain-event.js'
import { AftercommitError, BatchTooLargeError, InvalidSettingError } from '../core/errors.js'
import { silentLogger } from '../observe/logger.js'
import { createTestOutbox, type TestOutbox } from '../testing/test-outbox.js'
import type { Transaction } from '../transaction.js'

const secret = new Error('secret-4711')
const fails = (): never => {
  throw secret
}

function revoked(target: object): object {
  const { proxy, revoke } = Proxy.revocable(target, {})
  revoke()
  return proxy
}

/** Values of every kind that JavaScript has. */
const anything = fc.anything({
  maxDepth: 3,
  withBigInt: true,
  withBoxedValues: true,
  withDate: true,
  withMap: true,
  withNullPrototype: true,
  withObjectString: true,
  withSet: true,
  withSparseArray: true,
  withTypedArray: true,
})

/** Makes a value that fast-check itself could not look at. */
class Odd {
  constructor(readonly make: () => unknown) {}
}

/** The input with its odd values made. */
function made(given: unknown, depth = 0): unknown {
  if (given instanceof Odd) return given.make()
  if (depth === 2 || typeof given !== 'object' || given === null) return given
  if (Object.getPrototypeOf(given) !== Object.prototype) return given
  return Object.fromEntries(Object.entries(given).map(([name, value]) => [name, made(value, depth + 1)]))
}

const hostile = fc.oneof(
  anything,
  fc.jsonValue({ maxDepth: 4 }),
  fc
    .constantFrom<() => unknown>(
      () => revoked({}),
      () => revoked([]),
      () => revoked(() => {}),
      () => new Proxy({}, { get: fails, has: fails, ownKeys: fails, getPrototypeOf: fails }),
      () => Object.defineProperty({ a: 1 }, 'b', { enumerable: true, get: fails }),
      () => ({ toJSON: fails }),
      () => ({ [Symbol.toPrimitive]: fails, toString: fails }),
      () => Object.create({ inherited: 1 }),
      () => Promise.resolve(1),
      () => Symbol('x'),
      () => class {},
      () =>
        new (class Hidden {
          readonly #total = 1
          get total() {
            return this.#total
          }
        })(),
      () => 'x'.repeat(2_000_000),
      () => Number.NaN,
      () => '\ud800',
      () => '\0',
    )
    .map((make) => new Odd(make)),
)

/** Mostly a value that is right, and sometimes one of any kind. */
function mostly<T>(right: fc.Arbitrary<T>): fc.Arbitrary<unknown> {
  return fc.oneof({ weight: 6, arbitrary: right }, { weight: 1, arbitrary: hostile })
}

const text = fc.string({ minLength: 1, maxLength: 20 })
const date = fc.date({ min: new Date(0), max: new Date(8e12), noInvalidDate: true })

const event = fc.oneof(
  hostile,
  fc.record({ type: mostly(text), payload: hostile }, { requiredKeys: ['type'] }),
  fc.record(
    {
      type: text,
      payload: fc.jsonValue(),
      eventId: mostly(fc.uuid()),
      aggregateType: mostly(text),
      aggregateId: mostly(text),
      tenantId: mostly(text),
      occurredAt: mostly(date),
      version: mostly(fc.integer({ min: 1, max: 9 })),
      headers: mostly(fc.dictionary(text, mostly(text), { maxKeys: 3 })),
      metadata: mostly(
        fc.record({ userId: mostly(text), correlationId: mostly(text) }, { requiredKeys: [] }),
      ),
      orderingKey: mostly(text),
    },
    { requiredKeys: ['type'] },
  ),
  fc.record({ type: text, payloadJson: mostly(fc.json()), unheardOf: hostile }, { requiredKeys: ['type'] }),
  fc.record(
    {
      eventType: text,
      eventId: mostly(fc.uuid()),
      aggregateType: mostly(text),
      occurredAt: mostly(date),
      payload: hostile,
      toJSON: hostile.map((value) => new Odd(() => () => made(value))),
      toEnvelope: hostile,
      total: fc.jsonValue(),
    },
    { requiredKeys: ['eventType', 'eventId', 'aggregateType', 'occurredAt'] },
  ),
)

const options = fc.oneof(
  { weight: 12, arbitrary: fc.constant(undefined) },
  { weight: 1, arbitrary: hostile },
  {
    weight: 1,
    arbitrary: fc.record(
      { delayMs: hostile, deliverAt: hostile, onDuplicate: hostile, tx: hostile },
      { requiredKeys: [] },
    ),
  },
)

/** A copy of arrays and plain objects in which negative zeros are zeros, because JSON.stringify() writes `0`. */
function withoutNegativeZero(value: unknown): unknown {
  if (Object.is(value, -0)) return 0
  if (Array.isArray(value)) return value.map(withoutNegativeZero)
  if (typeof value !== 'object' || value === null) return value
  const prototype: unknown = Object.getPrototypeOf(value)
  if (prototype !== null && prototype !== Object.prototype) return value
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, withoutNegativeZero(item)]))
}

/** What the payload should come back as, for the events whose payload can be told without the outbox. */
function payloadOf(given: unknown): { readonly payload: unknown } | undefined {
  const { type, eventType, payload, payloadJson, ...others } = given as Record<string, unknown>
  if (typeof payloadJson === 'string') return { payload: JSON.parse(payloadJson) as unknown }
  if (Object.hasOwn(given as object, 'payload')) return { payload: withoutNegativeZero(payload) }
  if (type !== undefined) return typeof others.toJSON === 'function' ? undefined : { payload: null }
  return undefined
}

async function attempt(act: () => Promise<unknown>): Promise<unknown> {
  try {
    await act()
    return undefined
  } catch (error) {
    return error
  }
}

function expectOwnError(error: unknown): void {
  expect(error).toBeInstanceOf(AftercommitError)
  expect((error as AftercommitError).code).toMatch(/^[A-Z_]+$/)
  expect((error as Error).message).not.toContain('4711')
}

describe('publish', () => {
  it('refuses any input with an error of its own and writes nothing, or writes what comes back equal', async () => {
    await fc.assert(
      fc.asyncProperty(event, options, async (anyEvent, anyOptions) => {
        const [given, more] = [made(anyEvent), made(anyOptions)]
        const outbox = createTestOutbox()
        const error = await attempt(() => outbox.enqueue(given as PublishableEvent, more as PublishOptions))
        const [written, ...others] = await outbox.published()
        expect(others).toEqual([])
        if (error !== undefined) {
          expectOwnError(error)
          expect(written).toBeUndefined()
          return
        }
        const expected = payloadOf(given)
        if (expected) expect(written?.payload).toEqual(expected.payload)
      }),
      { numRuns: 1_000 },
    )
  })

  it('accepts every JSON value, as a value and as text', async () => {
    await fc.assert(
      fc.asyncProperty(fc.jsonValue({ maxDepth: 4 }), async (value) => {
        const outbox = createTestOutbox()
        const text = JSON.stringify(value)
        const error = await attempt(() =>
          outbox.transaction((tx) =>
            tx.publishAll([
              { type: 'a', payload: value },
              { type: 'a', payloadJson: text },
            ]),
          ),
        )
        if (error !== undefined) {
          expect(text).toMatch(/\\u0000|\\ud[89a-f]/)
          return
        }
        const payloads = (await outbox.published()).map((one) => one.payload)
        expect(payloads).toEqual([JSON.parse(text), JSON.parse(text)])
      }),
      { numRuns: 300 },
    )
  })
})

const brokerBus = () => new BrokerBus(new PaperTransport(), readBusOptions({ logger: silentLogger }))

type Publish = (outbox: TestOutbox, event: unknown, options?: unknown) => Promise<unknown>
type PublishAll = (outbox: TestOutbox, events: unknown, options?: unknown) => Promise<unknown>

const inTransaction =
  (act: (tx: Transaction, outbox: TestOutbox) => Promise<unknown>) => (outbox: TestOutbox) =>
    outbox.transaction((tx) => act(tx, outbox))

const WAYS: [string, Publish][] = [
  ['tx.publish', (outbox, ...args) => inTransaction((tx) => tx.publish(...(args as [never])))(outbox)],
  ['outbox.publish', (outbox, ...args) => inTransaction(() => outbox.publish(...(args as [never])))(outbox)],
  ['enqueue', (outbox, ...args) => outbox.enqueue(...(args as [never]))],
  ['InMemoryEventBus.publish', (_, ...args) => new InMemoryEventBus().publish(...(args as [never]))],
  ['BrokerBus.publish', (_, ...args) => brokerBus().publish(...(args as [never]))],
]
const WAYS_OF_MANY: [string, PublishAll][] = [
  ['tx.publishAll', (outbox, ...args) => inTransaction((tx) => tx.publishAll(...(args as [never])))(outbox)],
  [
    'outbox.publishAll',
    (outbox, ...args) => inTransaction(() => outbox.publishAll(...(args as [never])))(outbox),
  ],
  ['InMemoryEventBus.publishAll', (_, ...args) => new InMemoryEventBus().publishAll(...(args as [never]))],
  ['BrokerBus.publishAll', (_, ...args) => brokerBus().publishAll(...(args as [never]))],
]

describe.each(WAYS)('%s', (_way, publish) => {
  it.each<[string, unknown]>([
    ['null', null],
    ['undefined', undefined],
    ['text', 'order.placed'],
    ['an array of events', [{ type: 'a' }]],
    ['a definition that was not called', defineEvent('a')],
    ['a promise', Promise.resolve({ type: 'a' })],
    ['a revoked proxy', revoked({})],
    ['a revoked proxy of an array', revoked([])],
    ['a proxy of an event from a definition', new Proxy(defineEvent('a')(1), {})],
    ['an object that only looks like an envelope', { toEnvelope: () => Object.create(null) }],
    ['a revoked proxy as payload', { type: 'a', payload: revoked({}) }],
    ['a revoked proxy as headers', { type: 'a', headers: revoked({}) }],
    ['a revoked proxy as metadata', { type: 'a', metadata: revoked({}) }],
    ['a revoked proxy as occurredAt', { type: 'a', occurredAt: revoked(new Date()) }],
    ['a Map as headers', { type: 'a', headers: new Map([['a', 'b']]) }],
    ['Headers as headers', { type: 'a', headers: new Headers({ a: 'b' }) }],
    ['a Map as metadata', { type: 'a', metadata: new Map([['userId', 'u']]) }],
  ])('refuses %s', async (_what, given) => {
    const outbox = createTestOutbox()
    expectOwnError(await attempt(() => publish(outbox, given)))
    expect(await outbox.records()).toEqual([])
  })

  it.each<[string, unknown]>([
    ['null', null],
    ['a number', 5],
    ['text', 'ignore'],
    ['a function', () => {}],
    ['an array', []],
    ['a Date', new Date()],
    ['a Map', new Map([['delayMs', 5]])],
    ['a revoked proxy', revoked({})],
    ['a delay that is text', { delayMs: '5' }],
    ['a revoked proxy as deliverAt', { deliverAt: revoked(new Date()) }],
    ['a misspelled name', { delayMS: 5 }],
    ['a field of the event', { headers: {} }],
    ['a getter that throws', Object.defineProperty({}, 'delayMs', { enumerable: true, get: fails })],
  ])('refuses %s as options', async (_what, given) => {
    const outbox = createTestOutbox()
    const error = await attempt(() => publish(outbox, { type: 'a' }, given))
    expect(error).toBeInstanceOf(InvalidSettingError)
    expectOwnError(error)
    expect(await outbox.records()).toEqual([])
  })

  it('suggests the option that was probably meant', async () => {
    const outbox = createTestOutbox()
    const refusal = async (given: unknown) =>
      String(await attempt(() => publish(outbox, { type: 'a' }, given)))
    expect(await refusal({ delayMS: 5 })).toContain('publish() has no such setting. Did you mean delayMs?')
    expect(await refusal({ onDuplicates: 'ignore' })).toContain('Did you mean onDuplicate?')
    expect(await refusal({ orderingKey: 'k' })).toContain('Use the field orderingKey of the event.')
  })
})

describe.each(WAYS_OF_MANY)('%s', (_way, publishAll) => {
  it.each<[string, unknown]>([
    ['null', null],
    ['undefined', undefined],
    ['one event', { type: 'a' }],
    ['text', 'ab'],
    ['a Set', new Set([{ type: 'a' }])],
    ['an array with a hole', Object.assign(new Array(2), [{ type: 'a' }])],
    ['an array with null', [{ type: 'a' }, null]],
    ['a revoked proxy', revoked([])],
    ['an array whose elements throw', new Proxy([{ type: 'a' }], { get: fails })],
  ])('refuses %s, and writes nothing', async (_what, given) => {
    const outbox = createTestOutbox()
    expectOwnError(await attempt(() => publishAll(outbox, given)))
    expect(await outbox.records()).toEqual([])
  })

  it('refuses more than 64 MiB in one call, and writes nothing', async () => {
    const outbox = createTestOutbox()
    const payload = 'x'.repeat(1_048_574)
    const events = Array.from({ length: 64 }, () => ({ type: 'a', payload }))
    const error = await attempt(() => publishAll(outbox, events))
    expect(error).toBeInstanceOf(BatchTooLargeError)
    expect(String(error)).toContain('larger than 67108864 bytes in total')
    expect(await outbox.records()).toEqual([])
    await publishAll(outbox, events.slice(1))
  })

  it('counts headers and metadata, and the rows of many small events', async () => {
    const outbox = createTestOutbox()
    const headers = { large: 'x'.repeat(65_000) }
    const large = Array.from({ length: 1_040 }, () => ({ type: 'a', headers }))
    expect(await attempt(() => publishAll(outbox, large))).toBeInstanceOf(BatchTooLargeError)
    const one = { type: 'a' }
    const endless = new Proxy([one], { get: (_, key) => (key === 'length' ? 2 ** 32 - 1 : one) })
    expect(await attempt(() => publishAll(outbox, endless))).toBeInstanceOf(BatchTooLargeError)
  })
})

describe('an event that the caller changes after the call', () => {
  it('is written as it was when a publish waits for a nested transaction', async () => {
    const outbox = createTestOutbox()
    await outbox.transaction(async (tx) => {
      const event = { type: 'a', payload: { n: 1 }, headers: { h: 'first' } }
      const events = [event]
      const options = { deliverAt: new Date('2030-01-01') }
      const nested = tx.transaction(() => Promise.resolve())
      const published = tx.publishAll(events, options)
      event.payload.n = 2
      event.headers.h = 'second'
      events.push({ type: 'b', payload: { n: 3 }, headers: { h: 'third' } })
      options.deliverAt.setFullYear(2040)
      await Promise.all([nested, published])
    })
    const [record, ...others] = await outbox.records()
    expect(others).toEqual([])
    expect(record).toMatchObject({ payloadText: '{"n":1}', headers: { h: 'first' } })
    expect(record?.availableAt).toEqual(new Date('2030-01-01'))
  })

  it('is written as it was when enqueue waits for its transaction', async () => {
    const outbox = createTestOutbox()
    const event = { type: 'a', payload: { n: 1 } }
    const published = outbox.enqueue(event)
    event.payload.n = 2
    await published
    expect((await outbox.records())[0]?.payloadText).toBe('{"n":1}')
  })

  it('is refused before a transaction begins', async () => {
    const calls: string[] = []
    const { memoryStore } = await import('../stores/memory/index.js')
    const outbox = createTestOutbox({ store: memoryStore({ onCall: (method) => void calls.push(method) }) })
    await expect(outbox.enqueue({ type: 'a', payload: 1n })).rejects.toThrow(/bigint/)
    expect(calls).toEqual([])
  })
})

describe('tx', () => {
  it.each<[string, unknown]>([
    ['a revoked proxy', revoked({})],
    ['an object with the prototype of a transaction', 'prototype'],
    ['a proxy of a transaction', 'proxy'],
    ['a function', () => {}],
  ])('that is %s is refused', async (_what, given) => {
    const outbox = createTestOutbox()
    await outbox.transaction(async (tx) => {
      const made =
        given === 'proxy'
          ? new Proxy(tx, {})
          : given === 'prototype'
            ? Object.create(Object.getPrototypeOf(tx))
            : given
      expectOwnError(await attempt(() => outbox.publish({ type: 'a' }, { tx: made as Transaction<never> })))
    })
    expect(await outbox.records()).toEqual([])
  })
})
