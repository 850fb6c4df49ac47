import { inspect } from 'node:util'
import { type } from 'arktype'
import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import * as zMini from 'zod/mini'
import { z as z3 } from 'zod/v3'
import { DefinedEvent, defineEvent, type EventDefinition, type EventOptions } from './define-event.js'
import { EventEnvelope } from './envelope.js'
import {
  AftercommitError,
  EventValidationError,
  InvalidEventError,
  InvalidEventIdError,
  InvalidPayloadError,
  InvalidSettingError,
  UndecodablePayloadError,
} from './errors.js'
import type { StandardSchemaV1 } from './standard-schema.js'

function thrownBy(run: () => unknown): Error {
  try {
    run()
  } catch (error) {
    return error as Error
  }
  return expect.fail('nothing was thrown')
}

const fails = (): never => {
  throw new Error('secret-4711')
}

/** The schema with a `validate` that leaves no rejection of its own unhandled, as `validate` of zod does. */
function withoutRejection(schema: z.ZodType): StandardSchemaV1 {
  const validate = async (value: unknown) => {
    const result = await schema.safeParseAsync(value)
    return result.success ? { value: result.data } : { issues: result.error.issues }
  }
  const { _zod, safeParse } = schema
  const standard = { version: 1, vendor: 'zod', validate } as const
  return Object.assign({ '~standard': standard }, { _zod, safeParse })
}

enum OrderEvents {
  Placed = 'order.placed',
  Paid = 'order.paid',
}
const Aggregates = { Order: 'order', User: 'user' } as const

interface Order {
  orderId: string
  total: number
}

describe('an event without a schema', () => {
  const Placed = defineEvent<Order>('order.placed', { aggregateType: 'order', aggregateId: (p) => p.orderId })

  it('is made by calling its definition, and turns into an envelope', () => {
    const event = Placed({ orderId: 'o-1', total: 42 })
    expect(event).toBeInstanceOf(DefinedEvent)
    expect(event.eventType).toBe('order.placed')
    expect(event.aggregateType).toBe('order')
    expect(event.aggregateId).toBe('o-1')
    const envelope = event.toEnvelope()
    expect(envelope.eventId).toBe(event.eventId)
    expect(envelope.occurredAt).toEqual(event.occurredAt)
    expect(envelope.payload).toEqual({ orderId: 'o-1', total: 42 })
    expect(envelope.payloadText).toBe('{"orderId":"o-1","total":42}')
    expect(envelope.aggregateId).toBe('o-1')
    expect(envelope.version).toBe(1)
    expect(envelope.orderingKey).toBeUndefined()
  })

  it('is serialised once', () => {
    let reads = 0
    const event = defineEvent('a')({
      get n() {
        return ++reads
      },
    })
    expect(event.toEnvelope()).toBe(event.toEnvelope())
    expect(reads).toBe(1)
  })

  it('takes the options of the one event', () => {
    const envelope = Placed(
      { orderId: 'o-1', total: 1 },
      {
        eventId: 'e-1',
        occurredAt: new Date(5),
        aggregateId: 'other',
        tenantId: 't',
        headers: { a: '1' },
        metadata: { userId: 'u-0', traceparent: '00-x' },
        correlationId: 'c',
        causationId: 'p',
        userId: 'u-1',
        traceId: 't-1',
        orderingKey: 'k',
      },
    ).toEnvelope()
    expect(envelope.toJSON()).toEqual({
      eventId: 'e-1',
      eventType: 'order.placed',
      aggregateType: 'order',
      aggregateId: 'other',
      tenantId: 't',
      occurredAt: '1970-01-01T00:00:00.005Z',
      version: 1,
      headers: { a: '1' },
      metadata: { correlationId: 'c', causationId: 'p', userId: 'u-1', traceId: 't-1', traceparent: '00-x' },
      orderingKey: 'k',
      payload: { orderId: 'o-1', total: 1 },
    })
  })

  it('refuses a bad id or time when it is made, and a bad payload in toEnvelope()', () => {
    const order = { orderId: 'o-1', total: 1 }
    expect(() => Placed(order, { eventId: '' })).toThrow(InvalidEventIdError)
    expect(() => Placed(order, { occurredAt: new Date('x') })).toThrow(InvalidEventError)
    const event = Placed({ ...order, total: Number.NaN })
    expect(() => event.toEnvelope()).toThrow(InvalidPayloadError)
    expect(() => Placed(undefined as unknown as Order).toEnvelope()).toThrow(InvalidPayloadError)
  })

  it('may carry bytes', () => {
    const Uploaded = defineEvent<Uint8Array>('file.uploaded', {
      aggregateId: (bytes) => `size-${bytes.length}`,
    })
    const envelope = Uploaded(new Uint8Array([1, 2])).toEnvelope()
    expect(envelope.payload).toEqual(new Uint8Array([1, 2]))
    expect(envelope.payloadAs(Uploaded)).toEqual(new Uint8Array([1, 2]))
    expect(envelope.aggregateId).toBe('size-2')
    expect(() => Uploaded.encode(new Uint8Array(1))).toThrow(InvalidPayloadError)
  })
})

describe('ordering, tenant and aggregate', () => {
  it('gives two aggregates two keys, whatever colons their types and ids hold', () => {
    const keyOf = (aggregateType: string, id: string) =>
      defineEvent('a', { aggregateType, aggregateId: () => id, ordered: true })(1).toEnvelope().orderingKey
    expect(keyOf('a:b', 'c')).toBe('a%3Ab:c')
    expect(new Set([keyOf('a:b', 'c'), keyOf('a', 'b:c'), keyOf('a%3Ab', 'c')]).size).toBe(3)
  })

  it('orders by aggregate type and id', () => {
    const Placed = defineEvent<Order>('a', {
      aggregateType: 'order',
      aggregateId: (p) => p.orderId,
      ordered: true,
    })
    expect(Placed({ orderId: 'o-1', total: 1 }).toEnvelope().orderingKey).toBe('order:o-1')
    expect(Placed({ orderId: 'o-1', total: 1 }, { aggregateId: 'x' }).toEnvelope().orderingKey).toBe(
      'order:x',
    )
  })

  it('orders by a key of its own', () => {
    const Placed = defineEvent<Order>('a', { ordered: true, orderingKey: (p) => `k-${p.total}` })
    expect(Placed({ orderId: 'o-1', total: 1 }).toEnvelope().orderingKey).toBe('k-1')
  })

  it('refuses an ordered event without an aggregate id', () => {
    expect(() => defineEvent('a', { ordered: true })(1).toEnvelope()).toThrow(
      /ordered event needs an aggregateId/,
    )
  })

  it('passes the tenant through, which may be absent', () => {
    const Placed = defineEvent<{ tenant?: string }>('a', { tenantId: (p) => p.tenant })
    expect(Placed({ tenant: 't' }).toEnvelope().tenantId).toBe('t')
    expect(Placed({}).toEnvelope().tenantId).toBeUndefined()
  })

  it.each<[string, () => unknown]>([
    ['undefined', () => undefined],
    ['a number', () => 5],
    ['an empty string', () => ''],
    [
      'an error',
      () => {
        throw new Error('secret')
      },
    ],
  ])('refuses an aggregateId() that gives %s', (_what, aggregateId) => {
    const error = thrownBy(() =>
      defineEvent('a', { aggregateId: aggregateId as () => string })(1).toEnvelope(),
    )
    expect(error).toBeInstanceOf(InvalidEventError)
    expect((error as InvalidEventError).field).toBe('aggregateId')
    expect(error.message).not.toContain('secret')
  })
})

describe('a definition', () => {
  it('takes enums and const objects as types', () => {
    const Placed = defineEvent(OrderEvents.Placed, { aggregateType: Aggregates.Order })
    expect(Placed.eventType).toBe('order.placed')
    expect(Placed(1).toEnvelope().aggregateType).toBe('order')
  })

  it('cannot be changed', () => {
    expect(() => Object.assign(defineEvent('a'), { version: 2 })).toThrow(TypeError)
    expect(defineEvent('order.placed').name).toBe('order.placed')
  })

  it.each<[string, () => unknown]>([
    ['an empty type', () => defineEvent('')],
    ['an aggregate type with NUL', () => defineEvent('a', { aggregateType: '\0' })],
    ['version 0', () => defineEvent('a', { version: 0 })],
    ['a schema that is none', () => defineEvent('a', { schema: {} as StandardSchemaV1 })],
    ['a schema that throws', () => defineEvent('a', { schema: new Proxy({}, { get: fails }) as never })],
    ['an aggregateId that is no function', () => defineEvent('a', { aggregateId: 'orderId' as never })],
    ['an upcast that is no function', () => defineEvent('a', { upcast: {} as never })],
    ['ordered: "yes"', () => defineEvent('a', { ordered: 'yes' as never })],
  ])('refuses %s', (_what, define) => {
    expect(define).toThrow(InvalidEventError)
  })

  it.each<[string, RegExp]>([
    ['agregateType', /Did you mean aggregateType\?/],
    ['shema', /Did you mean schema\?/],
    ['upCast', /Did you mean upcast\?/],
    ['headers', /defineEvent\(\) has no such setting\. Known settings: aggregateType, schema/],
  ])('refuses the unknown option %s', (name, message) => {
    expect(() => defineEvent('a', { [name]: undefined })).toThrow(InvalidSettingError)
    expect(() => defineEvent('a', { [name]: undefined })).toThrow(message)
  })

  it.each([null, 'order', 5, [], new Map()])('refuses %s in the place of its options', (options) => {
    expect(() => defineEvent('a', options as never)).toThrow(InvalidSettingError)
  })
})

describe('the options of one event', () => {
  const Placed = defineEvent('order.placed')

  it.each<[string, RegExp]>([
    ['corelationId', /of event "order\.placed".*Did you mean correlationId\?/],
    ['eventID', /Did you mean eventId\?/],
    ['payloadJson', /Use publish\(\{ type, payloadJson \}\)/],
    ['version', /Use defineEvent\(type, \{ version \}\)/],
    ['delayMs', /Use publish\(event, \{ delayMs \}\)/],
    ['traceparent', /Use metadata: \{ traceparent \}/],
    ['unheardOf', /Known fields: eventId, occurredAt/],
  ])('refuse the unknown field %s', (name, message) => {
    expect(() => Placed(1, { [name]: 'x' })).toThrow(InvalidEventError)
    expect(() => Placed(1, { [name]: 'x' })).toThrow(message)
  })

  it('refuse what map() passes as the second argument', () => {
    const payloads = [1, 2]
    expect(() => payloads.map(Placed as (payload: number) => unknown)).toThrow(
      /payloads\.map\(\(payload\) =>/,
    )
  })

  it('are read once, when the event is made', () => {
    let reads = 0
    const options: EventOptions = {
      get aggregateId() {
        return `a-${++reads}`
      },
    }
    const event = Placed(1, options)
    expect(event.aggregateId).toBe('a-1')
    expect(event.toEnvelope().aggregateId).toBe('a-1')
    const changed = { tenantId: 't-1' }
    const made = Placed(1, changed)
    changed.tenantId = 't-2'
    expect(made.toEnvelope().tenantId).toBe('t-1')
  })

  it('throw an own error when they cannot be read', () => {
    const { proxy, revoke } = Proxy.revocable({}, {})
    revoke()
    for (const options of [
      proxy,
      new Proxy({}, { get: fails, ownKeys: fails }),
      { metadata: proxy },
      { headers: proxy },
    ]) {
      expect(() => Placed(1, options as EventOptions).toEnvelope()).toThrow(AftercommitError)
    }
    expect(() => Placed(proxy).toEnvelope()).toThrow(InvalidPayloadError)
  })
})

describe.each<[string, StandardSchemaV1<unknown, { orderId: string; placedAt: Date; status: string }>]>([
  [
    'zod',
    z.object({
      orderId: z.string(),
      placedAt: z.coerce.date(),
      status: z.enum(['new', 'paid']),
    }) as StandardSchemaV1<unknown, { orderId: string; placedAt: Date; status: string }>,
  ],
  [
    'valibot',
    v.object({
      orderId: v.string(),
      placedAt: v.pipe(v.string(), v.isoTimestamp(), v.toDate()),
      status: v.picklist(['new', 'paid']),
    }),
  ],
  ['arktype', type({ orderId: 'string', placedAt: 'string.date.parse', status: '"new" | "paid"' })],
])('an event with a %s schema', (_vendor, schema) => {
  const Placed = defineEvent('order.placed', { schema, aggregateId: (p) => p.orderId })
  const order = { orderId: 'o-1', placedAt: new Date(5), status: 'new' }

  it('gives Dates back, not strings', () => {
    const envelope = Placed(order).toEnvelope()
    expect(envelope.payloadText).toBe(
      '{"orderId":"o-1","placedAt":"1970-01-01T00:00:00.005Z","status":"new"}',
    )
    expect(envelope.payload).toEqual(order)
    expect(envelope.aggregateId).toBe('o-1')
    const stored = EventEnvelope.fromJSON(JSON.stringify(envelope)).payloadAs(Placed)
    expect(stored.placedAt).toEqual(new Date(5))
    expect(Object.isFrozen(stored)).toBe(true)
  })

  it('refuses what does not fit, naming the path and never the value', () => {
    const event = Placed({ ...order, status: 'secret-4711' })
    const error = thrownBy(() => event.toEnvelope())
    expect(error).toBeInstanceOf(EventValidationError)
    expect(error.message).toContain('"order.placed"')
    expect(error.message).toContain('$.status')
    expect(error.message).not.toContain('4711')
    expect((error as EventValidationError).issues).toHaveLength(1)
    expect(Object.keys(error)).not.toContain('issues')
  })

  it('refuses stored data that does not fit', () => {
    expect(() => Placed.decode('{"orderId":5}', 1)).toThrow(EventValidationError)
  })

  it('encodes what it can decode', () => {
    expect(Placed.decode(Placed.encode(order), 1)).toEqual(order)
    expect(() => Placed.encode({ ...order, status: 'x' })).toThrow(EventValidationError)
  })
})

describe('an event with a schema', () => {
  it('hints at coerce.date when a Date would not come back', () => {
    const Placed = defineEvent('a', { schema: z.object({ list: z.array(z.object({ at: z.date() })) }) })
    const error = thrownBy(() => Placed({ list: [{ at: new Date() }] }).toEnvelope())
    expect(error).toBeInstanceOf(EventValidationError)
    expect(error.message).toContain('$.list[0].at')
    expect(error.message).toContain('z.coerce.date()')
  })

  it('supports codecs, whose output is turned into JSON by toJSON', () => {
    class Money {
      constructor(readonly cents: number) {}
      toJSON(): string {
        return `${this.cents} ct`
      }
    }
    const schema = z.object({ price: z.string().transform((text) => new Money(Number.parseInt(text, 10))) })
    const Priced = defineEvent('priced', { schema })
    const envelope = Priced({ price: new Money(5) }).toEnvelope()
    expect(envelope.payloadText).toBe('{"price":"5 ct"}')
    expect(envelope.payload.price).toBeInstanceOf(Money)
    expect(envelope.payload.price.cents).toBe(5)
  })

  it('refuses a payload whose serialised form would not decode', () => {
    const Counted = defineEvent('a', { schema: z.string().transform((text) => text.length) })
    expect(() => Counted(5).toEnvelope()).toThrow(EventValidationError)
  })

  it('decodes once when published', () => {
    let runs = 0
    const schema = z.object({ n: z.number() }).refine(() => ++runs > 0)
    const envelope = defineEvent('a', { schema })({ n: 1 }).toEnvelope()
    expect(envelope.payload).toEqual({ n: 1 })
    expect(runs).toBe(1)
  })

  it('does not freeze the payload that it was given', () => {
    const payload = { list: [1] }
    const envelope = defineEvent('a', { schema: z.object({ list: z.array(z.number()) }) })(
      payload,
    ).toEnvelope()
    expect(Object.isFrozen(envelope.payload.list)).toBe(true)
    expect(Object.isFrozen(payload.list)).toBe(false)
  })

  it('refuses an asynchronous schema with a clear message', async () => {
    const schema = z.object({ n: z.number().refine(async () => true) })
    const error = thrownBy(() => defineEvent('a', { schema })({ n: 1 }).toEnvelope())
    expect(error).toBeInstanceOf(UndecodablePayloadError)
    expect(error.message).toContain('asynchronous')
    const rejecting = v.objectAsync({
      n: v.pipeAsync(
        v.number(),
        v.checkAsync(() => Promise.reject(new Error('x'))),
      ),
    })
    expect(() => defineEvent('b', { schema: rejecting })({ n: 1 }).toEnvelope()).toThrow(/asynchronous/)
    await new Promise((resolve) => setTimeout(resolve, 5))
  })

  it('turns what the schema throws into an error of its own', () => {
    const schema = z.number().transform(() => {
      throw new Error('secret')
    })
    const error = thrownBy(() => defineEvent('a', { schema }).decode('1', 1))
    expect(error).toBeInstanceOf(UndecodablePayloadError)
    expect(error.message).not.toContain('secret')
  })

  describe.each<[string, StandardSchemaV1]>([
    ['zod', z.object({ n: z.number().transform(fails) })],
    ['zod, in a refinement', z.object({ n: z.number().refine(fails) })],
    ['zod 4 mini', zMini.object({ n: zMini.pipe(zMini.number(), zMini.transform(fails)) })],
    ['zod 3', z3.object({ n: z3.number().transform(fails) })],
    ['valibot', v.object({ n: v.pipe(v.number(), v.transform(fails)) })],
  ])('of %s that throws', (_vendor, schema) => {
    it('is reported as a failing schema with the event type, and without what it threw', () => {
      const Placed = defineEvent('order.placed', { schema }) as EventDefinition
      for (const act of [() => Placed({ n: 1 }).toEnvelope(), () => Placed.decode('{"n":1}', 1)]) {
        const error = thrownBy(act) as UndecodablePayloadError
        expect(error).toBeInstanceOf(UndecodablePayloadError)
        expect(error.message).toContain('"order.placed" cannot be decoded: its schema threw an error')
        expect((error.thrown as Error).message).toBe('secret-4711')
        expect(inspect(error)).not.toContain('4711')
      }
    })
  })

  it('says of an asynchronous schema of zod 3 that it is asynchronous', () => {
    const schema = z3.object({ n: z3.number().refine(async () => true) })
    expect(() => defineEvent('a', { schema })({ n: 1 }).toEnvelope()).toThrow(/asynchronous/)
  })

  it('says of an asynchronous transform inside an object of zod 4 that it is asynchronous', () => {
    const schema = withoutRejection(z.object({ n: z.number().transform(async () => fails()) }))
    expect(() => defineEvent('a', { schema })({ n: 1 }).toEnvelope()).toThrow(/asynchronous/)
  })

  it('leaves no unhandled rejection of its own when an asynchronous schema of zod 4 rejects', async () => {
    const schema = withoutRejection(z.number().transform(async () => fails()))
    const unhandled: unknown[] = []
    const listener = (reason: unknown) => unhandled.push(reason)
    process.on('unhandledRejection', listener)
    try {
      expect(() => defineEvent('a', { schema }).decode('1', 1)).toThrow(/asynchronous/)
      await new Promise((resolve) => setTimeout(resolve, 20))
    } finally {
      process.off('unhandledRejection', listener)
    }
    expect(unhandled).toEqual([])
  })

  it('refuses instances whose data JSON would lose', () => {
    class Money {
      readonly #cents = 5
      get cents() {
        return this.#cents
      }
    }
    const Priced = defineEvent('priced', { schema: z.object({ price: z.any() }) })
    expect(() => Priced({ price: new Money() }).toEnvelope()).toThrow(/\$\.price: .*"cents" JSON would lose/)
  })

  it.each<[string, unknown]>([
    ['null', null],
    ['a number', 5],
    ['issues that are no array', { issues: 'none' }],
    ['issues of null', { issues: null }],
    ['issues with odd paths', { issues: [{ message: 'x', path: [null] }] }],
    ['a proxy that throws', new Proxy({}, { get: fails })],
  ])('survives a schema that returns %s', (_what, result) => {
    const schema = { '~standard': { version: 1, vendor: 'x', validate: () => result } } as StandardSchemaV1
    expect(() => defineEvent('a', { schema })(1).toEnvelope()).toThrow(UndecodablePayloadError)
  })

  it('survives a schema that returns nothing', () => {
    const schema = {
      '~standard': { version: 1, vendor: 'x', validate: () => undefined },
    } as unknown as StandardSchemaV1
    expect(() => defineEvent('a', { schema })(1).toEnvelope()).toThrow(UndecodablePayloadError)
  })

  it('refuses bytes', () => {
    const Placed = defineEvent('a', { schema: z.any() })
    expect(() => Placed(new Uint8Array(1)).toEnvelope()).toThrow(InvalidPayloadError)
  })
})

describe('versions', () => {
  const Placed = defineEvent('order.placed', {
    version: 3,
    schema: z.object({ name: z.object({ first: z.string() }), at: z.coerce.date() }),
    upcast: (payload, fromVersion) => {
      const old = payload as { name: string; at: string }
      return fromVersion < 3 ? { name: { first: old.name }, at: old.at } : payload
    },
  })

  it('maps an older version to the newest before decoding', () => {
    expect(Placed.decode('{"name":"Ada","at":"1970-01-01"}', 1)).toEqual({
      name: { first: 'Ada' },
      at: new Date(0),
    })
  })

  it('does not upcast the newest', () => {
    const Strict = defineEvent('a', { version: 2, upcast: () => expect.fail('upcast was called') })
    expect(Strict.decode('1', 2)).toBe(1)
    expect(Placed.decode('{"name":{"first":"Ada"},"at":"1970-01-01"}', 3).name.first).toBe('Ada')
    expect(Placed({ name: { first: 'Ada' }, at: new Date(0) }).toEnvelope().version).toBe(3)
  })

  it('refuses a version that is newer than the definition', () => {
    const error = thrownBy(() => Placed.decode('{}', 4))
    expect(error).toBeInstanceOf(UndecodablePayloadError)
    expect(error.message).toMatch(/version 4.*up to 3/)
  })

  it('says so when upcast throws, or the text is broken, without the data', () => {
    const Broken = defineEvent('a', {
      version: 2,
      upcast: () => {
        throw new Error('secret')
      },
    })
    for (const run of [() => Broken.decode('1', 1), () => Broken.decode('{"card": 4111', 1)]) {
      const error = thrownBy(run)
      expect(error).toBeInstanceOf(UndecodablePayloadError)
      expect(error.message).not.toMatch(/secret|4111/)
    }
    const { thrown } = thrownBy(() => Broken.decode('1', 1)) as UndecodablePayloadError
    expect((thrown as Error).message).toBe('secret')
  })
})
