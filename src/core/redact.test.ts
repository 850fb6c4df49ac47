import { format, inspect } from 'node:util'
import pino from 'pino'
import { describe, expect, it } from 'vitest'
import { toCloudEvent } from './cloud-event.js'
import { toCloudEventBinary } from './cloud-event-binary.js'
import { defineEvent } from './define-event.js'
import { EventEnvelope } from './envelope.js'
import { TransactionEndedError, TransactionRolledBackError } from './errors.js'
import {
  hideFromInspection,
  originalMessageOf,
  redactDriverError,
  redactDriverErrors,
  redactFields,
  redactHostedError,
} from './redact.js'

const OrderPlaced = defineEvent<{ card: string }>('order.placed', { aggregateType: 'order' })
const CONTENT = {
  payload: { card: '4111' },
  headers: { authorization: 'Bearer 4711' },
  metadata: { userId: '0815', correlationId: 'c-1' },
}
/** A time stamp and a process id may hold any digits. */
const QUIET = { base: null, timestamp: false }
const SECRETS = /4111|4711|0815/
const envelope = EventEnvelope.create({ eventType: 'order.placed', ...CONTENT })

class ClassEvent {
  readonly eventId = 'e-1'
  readonly eventType = 'order.placed'
  readonly aggregateType = 'order'
  readonly occurredAt = new Date(0)
  readonly card = '4111'
}

class Holder {
  readonly content: unknown
  constructor(content: unknown) {
    this.content = content
  }
}

function fail(): never {
  throw new Error('unreadable')
}

/** Every form in which application code has an event. */
const EVENTS: Readonly<Record<string, object>> = {
  envelope,
  'defined event': OrderPlaced(CONTENT.payload, { ...CONTENT.metadata, headers: CONTENT.headers }),
  'event of a class': new ClassEvent(),
  'event by name': { type: 'order.placed', ...CONTENT },
  'event by name with JSON text': { type: 'order.placed', payloadJson: '{"card":"4111"}' },
  'JSON of an envelope': envelope.toJSON(),
  'JSON of an envelope with bytes': EventEnvelope.create({
    ...{ eventType: 'order.placed', ...CONTENT },
    payload: new TextEncoder().encode('4111'),
  }).toJSON(),
  'spread of a defined event': { ...OrderPlaced(CONTENT.payload) },
  CloudEvent: toCloudEvent(envelope),
  'CloudEvent of another producer': {
    ...{ specversion: '1.0', id: 'e-1', source: '/shop', type: 'order.placed', userid: '0815' },
    data: CONTENT.payload,
  },
  'CloudEvent in binary mode': toCloudEventBinary(envelope),
  'headers of a CloudEvent in binary mode': toCloudEventBinary(envelope).headers,
  'headers of a CloudEvent in title case': {
    ...{ 'Ce-Id': ['e-1'], 'Ce-Type': ['order.placed'], 'Ce-Userid': ['0815'], 'Ce-Headers': ['4711'] },
  },
  'headers of a CloudEvent of Kafka': { ce_id: 'e-1', ce_type: 'order.placed', ce_userid: '0815' },
  'headers of a CloudEvent of AMQP': {
    ...{ 'cloudEvents:id': 'e-1', 'cloudEvents:type': 'order.placed', 'cloudEvents:userid': '0815' },
  },
  'proxy of an envelope': new Proxy(envelope, {}),
  'proxy of a defined event': new Proxy(OrderPlaced(CONTENT.payload, { headers: CONTENT.headers }), {}),
  'object that inherits from an envelope': Object.create(envelope),
  record: hideFromInspection({
    ...{ eventId: 'e-1', eventType: 'order.placed', aggregateType: 'order', payloadText: '{"card":"4111"}' },
    ...{ payloadBytes: null, payloadSize: 15, headers: CONTENT.headers, metadata: CONTENT.metadata },
    ...{ lastError: 'card: Error: refused', failures: [] },
  }),
}

const nested = (depth: number, value: unknown): unknown =>
  depth === 0 ? value : depth % 2 ? [nested(depth - 1, value)] : { inner: nested(depth - 1, value) }

/** Every place in which application code may log an event. */
const PLACES: Readonly<Record<string, (event: object) => unknown>> = {
  'a field': (event) => event,
  'a class instance': (event) => new Holder(event),
  'an instance in an instance': (event) => new Holder(new Holder([event])),
  'five levels deep': (event) => nested(5, event),
  '31 levels deep': (event) => nested(31, event),
  '100 levels deep': (event) => nested(100, event),
  'a Map': (event) => new Map([['event', event]]),
  'a key of a Map': (event) => new Map([[event, 1]]),
  'a Set': (event) => new Set([event]),
  'an object without a prototype': (event) => Object.assign(Object.create(null), { event }),
  'the result of toJSON': (event) => ({ toJSON: () => ({ event }) }),
  'a getter': (event) => Object.defineProperty({}, 'event', { enumerable: true, get: () => event }),
  'a getter that changes its answer': (event) => {
    let calls = 0
    const get = () => (calls++ === 0 ? 'harmless' : event)
    return Object.defineProperty({}, 'event', { enumerable: true, get })
  },
  'a field of an error': (event) => Object.assign(new Error('no'), { event }),
  'the cause of an error': (event) => new Error('no', { cause: event }),
  'an aggregate error': (event) => new AggregateError([event], 'no'),
  'an object that contains itself': (event) => {
    const circular: Record<string, unknown> = { event }
    circular.self = circular
    return circular
  },
  'an object that is met twice': (event) => {
    const shared = { event }
    return [shared, shared]
  },
  'a proxy': (event) => new Proxy({ event }, {}),
  metadata: (event) => [(event as { metadata?: unknown }).metadata],
}

describe('log fields', () => {
  const written = (value: unknown) => shownBy(redactFields({ value }, { redact: undefined, escapes: false }))
  const shownBy = (fields: object) => {
    let byPino = ''
    pino(QUIET, { write: (line: string) => (byPino += line) }).info(fields)
    let json = ''
    try {
      json = JSON.stringify(fields)
    } catch {}
    return [byPino, json, inspect(fields, { depth: Number.POSITIVE_INFINITY })]
  }

  for (const [kind, event] of Object.entries(EVENTS)) {
    it.each(Object.entries(PLACES))(`hold no data of an event: ${kind} in %s`, (_place, put) => {
      // Metadata as plain objects and payloads by themselves are values of the application.
      if (put === PLACES.metadata && !(kind === 'envelope' || kind === 'record')) return
      for (const text of written(put(event))) expect(text).not.toMatch(SECRETS)
    })
  }

  it('hold the ids of an event', () => {
    const { value } = redactFields({ value: [envelope] }, { redact: undefined, escapes: false })
    expect(value).toEqual([
      {
        eventId: envelope.eventId,
        eventType: 'order.placed',
        aggregateType: '__GLOBAL__',
        correlationId: 'c-1',
      },
    ])
  })

  it.each<[string, object]>([
    ['structured', toCloudEvent(envelope)],
    ['binary', toCloudEventBinary(envelope)],
    ['headers', toCloudEventBinary(envelope).headers],
  ])('hold the ids of a CloudEvent: %s', (_mode, cloudEvent) => {
    const { value } = redactFields({ value: cloudEvent }, { redact: undefined, escapes: false })
    expect(value).toEqual({
      eventId: envelope.eventId,
      eventType: 'order.placed',
      aggregateType: '__GLOBAL__',
      correlationId: 'c-1',
    })
  })

  it('hold the ids of an event and not its headers with the names of CloudEvent attributes', () => {
    const headers = { 'ce-id': '4711', 'ce-type': '4711' }
    for (const event of [
      EventEnvelope.create({ ...CONTENT, eventType: 'a', headers }),
      { ...CONTENT, type: 'a', headers },
    ])
      expect(written(event).join()).not.toMatch(SECRETS)
  })

  it('keep objects that are no event', () => {
    const fields = {
      ...{ request: { headers: { 'content-type': 'a' }, body: 'b' }, row: { id: 'e-1', type: 'a' } },
      ...{ price: { 'ce-total': '1' }, shop: { id: '1', type: 'a', source: 'b' }, ids: { eventId: 'e-1' } },
    }
    expect(redactFields(fields, { redact: undefined, escapes: true })).toBe(fields)
  })

  it.each(['E_4111', 4111])('show the code of an error after redact: %j', (code) => {
    const redact = (text: string) => text.replace(/\d{4}/g, '#')
    const error = Object.assign(new Error('no'), { code })
    const [byPino, json, byInspect] = shownBy(
      redactFields({ error, deep: [error] }, { redact, escapes: false }),
    )
    for (const text of [byPino, json, byInspect]) expect(text).not.toContain('4111')
    expect(JSON.parse(byPino ?? '')).toMatchObject({ error: { code: String(code).replace('4111', '#') } })
  })

  it('show the frames of an error after redact', () => {
    const named = {
      card4111() {
        return new Error('no')
      },
    }
    const redact = (text: string) => text.replace(/\d{4}/g, '#')
    const [text] = shownBy(redactFields({ err: named.card4111() }, { redact, escapes: false }))
    expect(text).toContain('card#')
    expect(text).not.toContain('card4111')
  })

  it('do not serialize an event that was not published', () => {
    let reads = 0
    const payload = Object.defineProperty({}, 'card', { enumerable: true, get: () => `${reads++}` })
    redactFields({ value: OrderPlaced(payload as never) }, { redact: undefined, escapes: false })
    expect(reads).toBe(0)
  })

  it('show an error by its name, its message, its code and its frames, all after redact', () => {
    const redact = (text: string) => text.replace(/\d{4}/g, '#')
    const cause = Object.assign(new Error('inner 4111'), { detail: '4111' })
    const error = Object.assign(new TypeError('card 4111\n    at 4711', { cause }), {
      code: 'E_CARD',
      sql: '4111',
    })
    error.name = 'Card4111Error'
    const fields = redactFields({ err: error, deep: [new Holder(error)] }, { redact, escapes: true })
    let line = ''
    pino(QUIET, { write: (text: string) => (line += text) }).error(fields)
    expect(line).not.toMatch(SECRETS)
    expect(JSON.parse(line)).toMatchObject({
      err: {
        type: 'Card#Error',
        message: 'card #\\u000a    at #: inner #',
        code: 'E_CARD',
        stack: expect.stringMatching(/^Card#Error: card #\\u000a {4}at #\n {4}at .*redact\.test/),
      },
      deep: [{ content: { name: 'Card#Error', message: 'card #\\u000a    at #', code: 'E_CARD' } }],
    })
  })

  it('are the same object when there is nothing to hide', () => {
    const fields = { a: 1, list: [{ b: 'c' }], when: new Date(), bytes: new Uint8Array(2), none: null }
    expect(redactFields(fields, { redact: undefined, escapes: true })).toBe(fields)
  })

  it('replace what cannot be read', () => {
    const { proxy, revoke } = Proxy.revocable({}, {})
    revoke()
    const throwing = { toJSON: () => expect.unreachable() }
    const options = { redact: undefined, escapes: false }
    expect(redactFields({ proxy, list: [proxy], throwing }, options)).toEqual({
      proxy: '[unreadable]',
      list: ['[unreadable]'],
      throwing: '[unreadable]',
    })
    expect(redactFields(proxy as never, options)).toEqual({ fields: '[unreadable]' })
  })

  it('cannot be made to fill other fields of a line by a hostile name', () => {
    const hostile = JSON.parse('{"__proto__": {"polluted": 1}, "x\\u202e": {"__proto__": 2}}')
    const fields = redactFields(hostile, { redact: undefined, escapes: true })
    expect(Object.keys(fields)).toEqual(['__proto__', 'x\\u202e'])
    expect((fields as { polluted?: unknown }).polluted).toBeUndefined()
  })
})

/** In every way in which an application or a logger prints an error. */
function shown(error: unknown): string {
  const all: string[] = []
  for (let cause = error; cause instanceof Error; cause = cause.cause)
    all.push(String(cause), String(cause.stack), JSON.stringify(cause))
  pino(QUIET, { write: (line: string) => void all.push(line) }).error(error)
  return [...all, inspect(error, { depth: 12 }), inspect(error, { depth: 12, showHidden: true })].join('\n')
}

/** Errors as the drivers throw them for a statement that a trigger refuses with the text `no: <secret>`. */
const raised = (secret: string): Readonly<Record<string, object>> => {
  const make = (fields: object) => Object.assign(new Error(`no: ${secret}`), fields)
  const names = { schema: secret, table: secret, column: secret, constraint: secret, dataType: secret }
  return {
    pg: make({
      ...{ severity: 'ERROR', code: 'P0001', detail: secret, hint: secret, ...names },
      ...{ where: 'PL/pgSQL function f() line 2 at RAISE', routine: 'exec_stmt_raise' },
    }),
    'pg with the code of a constraint': make({
      ...{ severity: 'ERROR', code: '23514', detail: secret, ...names },
      where: 'PL/pgSQL function f() line 2 at RAISE',
    }),
    'pg with the code of a missing right': make({
      severity: 'ERROR',
      code: '42501',
      where: 'PL/pgSQL function f()',
    }),
    'pg about a value': make({ severity: 'ERROR', code: '22P02' }),
    'postgres.js': make({
      ...{ severity: 'ERROR', severity_local: 'ERROR', code: 'P0001', detail: secret, query: secret },
      ...{
        table_name: secret,
        constraint_name: secret,
        parameters: [secret],
        where: 'PL/pgSQL function f()',
      },
    }),
    mysql2: make({
      errno: 1644,
      sqlState: '45000',
      code: 'ER_SIGNAL_EXCEPTION',
      sqlMessage: `no: ${secret}`,
      sql: secret,
    }),
    'mysql2 with the number of a constraint': make({
      errno: 3819,
      sqlState: 'HY000',
      code: 'ER_CHECK_CONSTRAINT_VIOLATED',
    }),
    'better-sqlite3': make({ code: 'SQLITE_CONSTRAINT_TRIGGER' }),
    'node:sqlite': make({ code: 'ERR_SQLITE_ERROR', errcode: 1811, errstr: 'constraint failed' }),
    '@libsql/client': make({
      code: 'SQLITE_CONSTRAINT',
      extendedCode: 'SQLITE_CONSTRAINT_TRIGGER',
      rawCode: 1811,
    }),
    Prisma: make({ code: 'P2010', clientVersion: '7', meta: { code: 'P0001', message: secret } }),
  }
}

describe('an error of a driver', () => {
  it.each(['~', 'ß4', '4711', '4111111111111111', 'e\n    at x'])(
    'never shows what a trigger raised: %j',
    (secret) => {
      const fresh = raised(secret)
      for (const [driver, error] of Object.entries(fresh)) {
        const code = (error as { code: string }).code
        expect(redactDriverError(error), driver).toBe(error)
        expect(shown(error), driver).not.toContain(`no: ${secret}`)
        if (secret !== 'e\n    at x') expect(shown(error), driver).not.toContain(secret)
        expect(error, driver).toMatchObject({ code, originalMessage: `no: ${secret}` })
        expect(originalMessageOf(error), driver).toBe(`no: ${secret}`)
      }
    },
  )

  it('never shows what a trigger raised where an ORM wraps it', () => {
    for (const [driver, error] of Object.entries(raised('4711'))) {
      const wrapped = Object.assign(
        new Error('Failed query: insert into t values ($1)\nparams: 4711', { cause: error }),
        {
          query: 'insert',
          params: ['4711'],
        },
      )
      const cleaned = redactHostedError(wrapped, 'insert into t values ($1)', ['4711'])
      expect(shown(cleaned), driver).not.toContain('4711')
      expect(cleaned, driver).toMatchObject({ code: (error as { code: string }).code })
    }
  })

  it.each([
    [
      'duplicate key value violates unique constraint "orders_pkey"',
      {
        severity: 'ERROR',
        code: '23505',
        constraint: 'orders_pkey',
        table: 'orders',
        detail: 'Key (id)=(4711)',
      },
    ],
    ['relation "outbox_event" does not exist', { severity: 'ERROR', code: '42P01' }],
    ['permission denied for table outbox_event', { severity: 'ERROR', code: '42501' }],
    ['permission denied for schema public', { severity: 'ERROR', code: '42501' }],
    [
      'new row violates row-level security policy for table "outbox_event"',
      { severity: 'ERROR', code: '42501' },
    ],
    ['canceling statement due to statement timeout', { severity: 'ERROR', code: '57014' }],
    ['deadlock detected', { severity: 'ERROR', code: '40P01', detail: '4711', where: undefined }],
    ["Table 'shop.outbox_event' doesn't exist", { errno: 1146, sqlState: '42S02' }],
    ["Check constraint 'positive' is violated.", { errno: 3819, sqlState: 'HY000', sql: '4711' }],
    ['UNIQUE constraint failed: outbox_event.event_id', { code: 'SQLITE_CONSTRAINT_UNIQUE' }],
    ['no such table: outbox_event', { code: 'SQLITE_ERROR' }],
    ['database is locked', { code: 'ERR_SQLITE_ERROR', errcode: 517, errstr: 'database is locked' }],
    [
      'connect ECONNREFUSED 127.0.0.1:5432',
      { code: 'ECONNREFUSED', errno: -111, syscall: 'connect', port: 5432 },
    ],
    ['Connection terminated unexpectedly', {}],
  ])('keeps a text that holds names only: %s', (message, fields) => {
    const error = Object.assign(new Error(message), fields)
    expect(redactDriverError(error)).toBe(error)
    expect(error.message).toBe(message)
    expect(shown(error)).not.toContain('4711')
  })

  it.each([
    ['password authentication failed for user "shop"', { severity: 'FATAL', code: '28P01' }],
    ['no pg_hba.conf entry for host "::1", user "shop"', { severity: 'FATAL', code: '28000' }],
    ['role "shop" does not exist', { severity: 'FATAL', code: '28000' }],
    ['role "shop" does not exist', { severity: 'ERROR', code: '42704' }],
    ['database "shop" does not exist', { severity: 'FATAL', code: '3D000' }],
    ['too many connections for role "shop"', { severity: 'FATAL', code: '53300' }],
    ['no such user: shop', { severity: 'FATAL', code: '08P01' }],
    ['permission denied to set role "shop"', { severity: 'FATAL', code: '42501' }],
    ["Access denied for user 'shop'@'localhost' (using password: YES)", { errno: 1045, sqlState: '28000' }],
    [
      "INSERT command denied to user 'shop'@'h' for table `db`.`outbox_event`",
      { errno: 1142, sqlState: '42000' },
    ],
    [
      "ENOENT: no such file or directory, open '/etc/shop.crt'",
      { code: 'ENOENT', syscall: 'open', path: '/etc/shop.crt' },
    ],
    [
      'connect ENOENT /run/shop/.s.PGSQL.5432',
      { code: 'ENOENT', syscall: 'connect', address: '/run/shop/.s.PGSQL.5432' },
    ],
    [
      'connect EACCES \\\\.\\pipe\\shop',
      { code: 'EACCES', syscall: 'connect', address: '\\\\.\\pipe\\shop' },
    ],
  ])('shows no role and no path: %s', (message, fields) => {
    const error = Object.assign(new Error(message), fields)
    redactDriverError(error)
    expect(shown(error)).not.toContain('shop')
    expect(error.message).toMatch(
      /SQLSTATE|denied for table `db`.`outbox_event`|^ENOENT: no such file|^connect E(NOENT|ACCES)$/,
    )
  })

  it('keeps codes, names and frames, and hides every other field from loggers', () => {
    const fields = {
      severity: 'ERROR',
      code: '23514',
      constraint: 'paid',
      detail: 'row (4111)',
      params: ['4111'],
    }
    const error = Object.assign(new Error('violates check constraint "paid"'), fields)
    redactDriverError(error)
    expect(JSON.parse(JSON.stringify(error))).toEqual({
      severity: 'ERROR',
      code: '23514',
      constraint: 'paid',
    })
    expect(error.detail).toBe('row (4111)')
    const [refused] = [raised('4111').pg as Error]
    redactDriverError(refused)
    expect(refused.stack).toMatch(
      /^Error: a trigger or function raised an error \(SQLSTATE P0001\)\..*\n {4}at .*redact\.test/,
    )
  })

  it('is replaced where it is one cause of another error or one of its errors', () => {
    const error = new TransactionRolledBackError(raised('4111').pg)
    expect(redactDriverError(error)).toBe(error)
    expect(error.message).toContain('rolled the transaction back')
    const many = new AggregateError(
      [raised('4111').mysql2, new Error('x', { cause: raised('4111').Prisma })],
      'all',
    )
    for (const thrown of [error, many]) expect(shown(redactDriverError(thrown))).not.toContain('4111')
  })

  it('is copied if it cannot be changed', () => {
    const frozen = Object.freeze(raised('4111').pg as Error)
    const outer = new Error('outer', { cause: frozen })
    // As postgres.js does, which shows them with its option `debug`.
    const fixed = Object.assign(new RangeError('no'), { code: 'P0001', severity: 'ERROR' })
    Object.defineProperties(fixed, {
      parameters: { value: ['4111'], enumerable: true },
      query: { value: '4111' },
    })
    for (const error of [frozen, outer, fixed]) {
      const cleaned = redactDriverError(error)
      expect(shown(cleaned)).not.toContain('4111')
      expect(inspect(cleaned)).toContain('P0001')
    }
    const copy = redactDriverError(fixed)
    expect(copy).toBeInstanceOf(RangeError)
    expect(copy).toMatchObject({ parameters: ['4111'], originalMessage: 'no' })
    expect((copy as Error).stack).toContain('redact.test')
  })

  it('is replaced if a driver without a server quotes an event, however short the quoted text is', () => {
    const short = EventEnvelope.create({
      eventType: 'a',
      payload: '~',
      headers: { b: '§' },
      metadata: { userId: '¤' },
    })
    for (const quoted of ['"~"', '§', '¤']) {
      const error = redactDriverError(Object.assign(new Error(`cannot bind ${quoted}`), { code: 'E_BIND' }), [
        short,
      ])
      expect(shown(error)).not.toMatch(/[~§¤]/)
      expect((error as Error).message).toContain('E_BIND')
    }
  })

  it('of a batch may quote any of its events, each of which is read once', () => {
    let reads = 0
    const events = Array.from({ length: 500 }, (_, n) => ({
      payloadText: null,
      metadata: {},
      get headers() {
        reads++
        return { token: `secret ${n + 1_000}` }
      },
    }))
    const errors = redactDriverErrors(
      events.map((_, n) => new Error(`refused: secret ${n + 1_000}`)),
      events,
    )
    expect(errors.map((error) => shown(error)).join()).not.toContain('secret')
    expect(reads).toBe(events.length)
  })

  it('of Redis does not quote the arguments of an unknown command', () => {
    const error = new Error(
      "ERR unknown command 'XADD', with args beginning with: 'events' '*' 'data' '{\"card\":\"4111",
    )
    redactDriverError(error)
    expect(shown(error)).not.toContain('4111')
    expect(error.message).toContain("unknown command 'XADD'")
  })

  it.each([
    ['text', 'thrown'],
    ['nothing', undefined],
    ['one without a message', Object.assign(new Error('x'), { message: undefined })],
    [
      'one whose cause cannot be read',
      Object.defineProperty(new Error('x'), 'cause', { get: () => expect.unreachable(), configurable: true }),
    ],
    ['an error of the outbox', new TransactionEndedError()],
  ])('is returned as it is: %s', (_what, thrown) => {
    expect(redactDriverError(thrown, [envelope])).toBe(thrown)
  })

  it('cannot make redaction fail', () => {
    const { proxy, revoke } = Proxy.revocable(new Error('x'), {})
    revoke()
    expect(redactDriverError(proxy)).toBe(proxy)
    const circular = new Error('x')
    circular.cause = circular
    expect(redactDriverError(circular)).toBe(circular)
    expect(redactHostedError(proxy, 'select 1', [])).toBeInstanceOf(Error)
  })
})

const SQL = 'insert into "outbox_event" (event_id, payload)\nvalues (?, ?)'
const PARAMS = ['0197', `{"card":"4711 - 'secret'"}`]

describe('an error about a statement of the outbox that an ORM ran', () => {
  const cleaned = (error: unknown) => redactHostedError(error, SQL, PARAMS) as Error & Record<string, unknown>

  it('loses a statement that the ORM has filled in', () => {
    for (const card of ['4711', 'no - 4711', '4711 - no']) {
      const filled = `insert into "outbox_event" (event_id, payload) values ('0197', '{"card":"${card}"}')`
      for (const message of [`${filled} - no such column: payload`, `it failed: ${filled}`]) {
        expect(shown(cleaned(new Error(message)))).not.toContain('4711')
        expect(shown(cleaned(Object.assign(new Error(message), { code: 'SQLITE_ERROR' })))).not.toContain(
          '4711',
        )
      }
    }
  })

  it("keeps the server's words if they hold names only, and no field that quotes a row", () => {
    const error = {
      message: `(conn=1) Unknown column\nsql: ${SQL} - parameters:['0197','${PARAMS[1]}']`,
      sqlMessage: "Unknown column 'payload' in 'field list'",
      sql: `${SQL} - parameters:['${PARAMS[1]}']`,
      detail: `Failing row contains (${PARAMS[1]})`,
      errno: 1054,
      sqlState: '42S22',
    }
    expect(shown(cleaned(error))).not.toContain('4711')
    expect(cleaned(error)).toMatchObject({ message: error.sqlMessage, errno: 1054, sqlState: '42S22' })
  })

  it('is the innermost error that has a code, and of its class', () => {
    class DriverError extends Error {
      readonly code = '42P01'
      readonly severity = 'ERROR'
    }
    const error = Object.assign(new Error('the ORM failed', { cause: new DriverError('no table') }), {
      parameters: PARAMS,
    })
    expect(cleaned(error)).toBeInstanceOf(DriverError)
    expect(cleaned(error)).toMatchObject({ message: 'no table', code: '42P01', severity: 'ERROR' })
    expect(cleaned(error)).not.toHaveProperty('parameters')
  })

  it('shows no value of the statement, however short it is', () => {
    for (const error of [new Error('bad value ~ in row 1'), 'thrown: ~'])
      expect(shown(redactHostedError(error, SQL, ['~']))).not.toContain('~')
    expect(cleaned(new Error('the transaction is closed')).message).toBe('the transaction is closed')
  })

  it('is returned as it is if it is an error of the outbox', () => {
    const ended = new TransactionEndedError()
    expect(redactHostedError(ended, SQL, PARAMS)).toBe(ended)
  })
})

describe('console.log', () => {
  it.each(Object.entries(EVENTS).filter(([kind]) => ['envelope', 'defined event', 'record'].includes(kind)))(
    'shows the ids of an event and no data: %s',
    (_kind, event) => {
      for (const value of [event, [event], { deep: { deeper: [event] } }, new Map([[event, event]])]) {
        for (const showHidden of [false, true]) {
          const text = inspect(value, { depth: 9, showHidden })
          expect(text).not.toMatch(SECRETS)
          expect(text).toContain('order.placed')
        }
      }
    },
  )

  it.each<[string, (event: object) => object]>([
    ['a proxy', (event) => new Proxy(event, {})],
    ['a proxy of a proxy', (event) => new Proxy(new Proxy(event, {}), {})],
    ['an object that inherits from it', (event) => Object.create(event)],
    ['a copy of its properties', (event) => Object.create(event, Object.getOwnPropertyDescriptors(event))],
    [
      'a proxy whose fields cannot be read',
      (event) =>
        new Proxy(event, {
          get: (target, key) => (typeof key === 'string' ? fail() : Reflect.get(target, key)),
        }),
    ],
    ['a proxy whose keys cannot be read', (event) => new Proxy(event, { ownKeys: () => fail() })],
  ])('shows no data and does not throw for an event behind %s', (_title, wrap) => {
    for (const kind of ['envelope', 'defined event', 'record']) {
      const value = wrap(EVENTS[kind] as object)
      for (const options of [{}, { showHidden: true }, { showProxy: true }])
        for (const text of [inspect(value, options), inspect({ deep: [value] }, { depth: 9, ...options })])
          expect(text, kind).not.toMatch(SECRETS)
      expect(() => format('%s %o %O', value, value, value), kind).not.toThrow()
    }
  })

  it('shows the ids of an event behind a proxy', () => {
    for (const event of [envelope, OrderPlaced(CONTENT.payload)])
      expect(inspect(new Proxy(event, {}), { breakLength: Number.POSITIVE_INFINITY })).toMatch(
        /^(EventEnvelope|DefinedEvent) \{ eventId: '.*'order\.placed'/s,
      )
  })

  it('shows no metadata behind a proxy', () => {
    for (const metadata of [new Proxy(envelope.metadata, {}), Object.create(envelope.metadata)])
      expect(inspect(metadata)).not.toMatch(SECRETS)
  })

  it('shows the error text of a record, cut at 500 characters', () => {
    const record = hideFromInspection({
      ...{ payloadText: '1', payloadSize: 1, headers: null, metadata: null },
      ...{ lastError: 'x'.repeat(1_000), failures: [{ message: 'y'.repeat(1_000) }] },
    })
    const text = inspect(record, { breakLength: Number.POSITIVE_INFINITY })
    expect(text).toMatch(/'x{500}'/)
    expect(text).toMatch(/'y{500}'/)
    expect(text).not.toMatch(/x{501}|y{501}/)
    expect(JSON.stringify(record)).toContain('x'.repeat(1_000))
  })
})
