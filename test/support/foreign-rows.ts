import { expect, onTestFinished } from 'vitest'
import { eventOf, messageOf } from '../../src/bus/message.js'
import {
  createOutbox,
  EventEnvelope,
  type EventRecord,
  fixedDelay,
  type Outbox,
  type OutboxOptions,
  type OutboxStore,
} from '../../src/index.js'
import { recordLog } from './log-recorder.js'
import { randomOf } from './random.js'
import { until } from './waiting.js'

export type Dialect = 'postgres' | 'mysql' | 'sqlite'
export type Cell = string | number | null | Uint8Array
export type Columns = Readonly<Record<string, Cell>>

export interface StoredRow {
  readonly eventId: string
  readonly status: number
  readonly attempts: number
  readonly lastError: string | null
}

/** An outbox table into which a test writes by plain SQL. */
export interface ForeignTable {
  readonly dialect: Dialect
  readonly store: OutboxStore
  /** Rejects when the database refuses the row. */
  insert(columns: Columns): Promise<unknown>
  /** Runs SQL with its values written out, as a person would type it. */
  run(sql: string): Promise<unknown>
  /** In the order of `seq`. */
  rows(): Promise<readonly StoredRow[]>
}

interface ForeignValue {
  readonly value: Cell
  /** The reason with which the row becomes dead; a row without one is handled. */
  readonly reason?: RegExp
  /** Databases whose column can hold the value; all of them unless given. */
  readonly on?: readonly Dialect[]
}

const SQL_TEXTS: readonly Dialect[] = ['mysql', 'sqlite']
const ANY_LENGTH: readonly Dialect[] = ['postgres', 'sqlite']
const nested = (levels: number) => `${'['.repeat(levels)}${']'.repeat(levels)}`
const bytes = (...values: number[]) => new Uint8Array(values)

const UNCLEAN = /holds control characters or half a surrogate pair/
const NO_MILLISECONDS = /its available_at is not a time in milliseconds since 1970/
/** Integers of 64 bits. As text, because a number of JavaScript has fewer bits. A column for integers converts the text. */
const LARGEST_INTEGER = '9223372036854775807'
const SMALLEST_INTEGER = '-9223372036854775808'
const LONG = /is longer than \d+ characters/

const names: readonly ForeignValue[] = [
  { value: 'a\u0001b', reason: UNCLEAN },
  { value: '\n', reason: UNCLEAN },
  { value: 'a\u009fb', reason: UNCLEAN },
  { value: '\u001eb\u001f', reason: UNCLEAN },
  { value: '😀'.repeat(200), reason: LONG },
  { value: 'x'.repeat(256), reason: LONG, on: ANY_LENGTH },
  { value: 'x'.repeat(100_000), reason: LONG, on: ['sqlite'] },
  { value: '\u0000', reason: UNCLEAN, on: ['mysql'] },
  { value: 'a\u0000b', reason: UNCLEAN, on: ['mysql'] },
  { value: bytes(0xff, 0xfe), reason: /must be a string/, on: ['sqlite'] },
  { value: bytes(), reason: /must be a string/, on: ['sqlite'] },
]
const empty: ForeignValue = { value: '', reason: /it is empty/ }

/** What plain SQL can put into each column, and what becomes of the row. */
export const FOREIGN: Readonly<Record<string, readonly ForeignValue[]>> = {
  event_type: [...names, { ...empty, on: ANY_LENGTH }],
  event_id: [
    { value: 'a\u0001b', reason: UNCLEAN },
    { value: '\u001e', reason: UNCLEAN },
    { value: '😀'.repeat(60), reason: LONG },
    { value: 'i'.repeat(65), reason: LONG, on: ANY_LENGTH },
    { value: 'i'.repeat(100_000), reason: LONG, on: ['sqlite'] },
    { ...empty, on: ANY_LENGTH },
    { value: 'a\u0000b', reason: UNCLEAN, on: ['mysql'] },
    { value: bytes(0), reason: /it is not a string/, on: ['sqlite'] },
    { value: bytes(0xff, 0x00, 0xfe), reason: /it is not a string/, on: ['sqlite'] },
  ],
  aggregate_type: [...names, empty],
  aggregate_id: [...names, empty],
  tenant_id: [...names, empty],
  ordering_key: [...names, { ...empty, on: ['postgres'] }],
  version: [
    { value: 0, reason: /an integer of at least 1/, on: ANY_LENGTH },
    { value: -2_147_483_648, reason: /an integer of at least 1/, on: ANY_LENGTH },
    { value: 'abc', reason: /an integer of at least 1/, on: ['sqlite'] },
    { value: 1.5, reason: /an integer of at least 1/, on: ['sqlite'] },
    { value: bytes(1, 2), reason: /an integer of at least 1/, on: ['sqlite'] },
    { value: 4_294_967_296, reason: /an integer of at least 1/, on: ['sqlite'] },
    { value: LARGEST_INTEGER, reason: /an integer of at least 1/, on: ['sqlite'] },
    { value: SMALLEST_INTEGER, reason: /an integer of at least 1/, on: ['sqlite'] },
    { value: Number.POSITIVE_INFINITY, reason: /an integer of at least 1/, on: ['sqlite'] },
    { value: 2_147_483_647 },
  ],
  attempts: [
    { value: -1, reason: /must be an integer from 0/ },
    { value: -2_147_483_648, reason: /must be an integer from 0/ },
    { value: 2_147_483_647, reason: /must be an integer from 0/ },
    { value: 'many', reason: /must be an integer from 0/, on: ['sqlite'] },
    { value: LARGEST_INTEGER, reason: /must be an integer from 0/, on: ['sqlite'] },
    { value: SMALLEST_INTEGER, reason: /must be an integer from 0/, on: ['sqlite'] },
  ],
  occurred_at: [
    { value: '-infinity', reason: /valid Date in the years 1 to 9999/, on: ['postgres'] },
    { value: 'infinity', reason: /valid Date in the years 1 to 9999/, on: ['postgres'] },
    { value: '10000-01-01', reason: /valid Date in the years 1 to 9999/, on: ['postgres'] },
    { value: '294276-12-31', reason: /valid Date in the years 1 to 9999/, on: ['postgres'] },
    { value: '4713-01-01 BC', reason: /valid Date in the years 1 to 9999/, on: ['postgres'] },
    { value: '0000-00-00 00:00:00', reason: /valid Date in the years 1 to 9999/, on: ['mysql'] },
    { value: 'yesterday', reason: /valid Date in the years 1 to 9999/, on: ['sqlite'] },
    { value: '2026-01-01 00:00:00', reason: /valid Date in the years 1 to 9999/, on: ['sqlite'] },
    { value: 9e15, reason: /valid Date in the years 1 to 9999/, on: ['sqlite'] },
    { value: -9e15, reason: /valid Date in the years 1 to 9999/, on: ['sqlite'] },
    { value: LARGEST_INTEGER, reason: /valid Date in the years 1 to 9999/, on: ['sqlite'] },
    { value: SMALLEST_INTEGER, reason: /valid Date in the years 1 to 9999/, on: ['sqlite'] },
    { value: '0001-01-01 00:00:00', on: ['postgres'] },
    { value: '9999-12-31 23:59:59', on: ['postgres', 'mysql'] },
    { value: 1.5, on: ['sqlite'] },
  ],
  headers: [
    { value: '[1]', reason: /they must be an? (plain )?object of strings/ },
    { value: '"text"', reason: /they must be an? (plain )?object of strings/ },
    { value: '5', reason: /they must be an? (plain )?object of strings/ },
    { value: '{"a": 1}', reason: /header "a" of event .* its value is not a string/ },
    { value: '{"a": null}', reason: /its value is not a string/ },
    { value: '{"ok": "yes", "a": {"b": "c"}}', reason: /header "a" of event/ },
    { value: '{"": "x"}', reason: /header name of event .* it is empty/ },
    { value: '{"a\\u0001": "x"}', reason: UNCLEAN },
    { value: '{"a": "\\u0000"}', reason: /holds U\+0000/ },
    { value: '{"a": "\\ud800"}', reason: /half a surrogate pair/ },
    { value: JSON.stringify({ a: 'x'.repeat(65_536) }), reason: /exceed 65536 characters/ },
    {
      value: JSON.stringify({ a: 'x'.repeat(5_000_000) }),
      reason: /exceed 65536 characters|larger than 1048576 bytes/,
    },
    { value: 'oops', reason: /they must be an? (plain )?object of strings/, on: SQL_TEXTS },
    { value: '', reason: /they must be an? (plain )?object of strings/, on: SQL_TEXTS },
    { value: bytes(0x7b, 0x7d), reason: /header/, on: ['sqlite'] },
    { value: 'null' },
    { value: '{"a": "x"}\u0000', reason: /they must be an? (plain )?object of strings/, on: ['mysql'] },
    { value: '{"a": "x"} x', reason: /they must be an? (plain )?object of strings/, on: SQL_TEXTS },
    { value: '{}' },
    { value: '{"__proto__": "x", "constructor": "y"}' },
  ],
  metadata: [
    { value: '{"userId": 5}', reason: /metadata\.userId: it must be a string, not number/ },
    {
      value: '{"correlationId": {"a": 1}}',
      reason: /metadata\.correlationId: it must be a string, not object/,
    },
    { value: '{"traceId": true}', reason: /metadata\.traceId: it must be a string, not boolean/ },
    { value: '{"causationId": ["a"]}', reason: /metadata\.causationId: it must be a string/ },
    { value: '{"traceparent": "a\\nb"}', reason: UNCLEAN },
    {
      value: JSON.stringify({ correlationId: 'c'.repeat(1_000_000) }),
      reason: /is longer than 1024 characters/,
    },
    { value: '[]', reason: /it must be an object/ },
    { value: '5', reason: /it must be an object/ },
    { value: '{', reason: /it must be an object/, on: SQL_TEXTS },
    { value: '{"userId": "u"}\u0000', reason: /it must be an object/, on: ['mysql'] },
    { value: '{"userId": "u"} x', reason: /it must be an object/, on: SQL_TEXTS },
    { value: 'null' },
    { value: '{"correlationId": null, "userId": "u"}' },
    { value: '{"of another program": {"deep": [1]}}' },
  ],
  payload: [
    { value: nested(101), reason: /nested deeper than 100 levels/ },
    { value: '{"n": 1e400}', reason: /outside the range of a double/ },
    { value: '[-1e400]', reason: /outside the range of a double/ },
    { value: '[1E-400]', reason: /outside the range of a double/ },
    { value: `[${'9'.repeat(400)}]`, reason: /outside the range of a double/ },
    { value: '"\\u0000"', reason: /U\+0000/ },
    { value: '{"\\udc00": 1}', reason: /half a surrogate pair/ },
    { value: JSON.stringify('x'.repeat(1_048_576)), reason: /larger than 1048576 bytes/, on: ANY_LENGTH },
    { value: JSON.stringify('ü'.repeat(600_000)), reason: /larger than 1048576 bytes/, on: ANY_LENGTH },
    { value: '{oops', reason: /not valid JSON/, on: SQL_TEXTS },
    { value: '', reason: /not valid JSON/, on: SQL_TEXTS },
    { value: 'NaN', reason: /not valid JSON/, on: SQL_TEXTS },
    { value: '{"a": 1}\u0000', reason: /not valid JSON/, on: ['mysql'] },
    { value: '{"a": 1}\u0000x', reason: /not valid JSON/, on: ['mysql'] },
    { value: '{"a": 1} x', reason: /not valid JSON/, on: SQL_TEXTS },
    { value: bytes(0x31), reason: /payload/, on: ['sqlite'] },
    { value: nested(100) },
    { value: JSON.stringify({ '[[[': `${'['.repeat(300)} 1e400 \\" \\`, n: [-0.5, 1e300, 0.1] }) },
    { value: ' {"a" : [ 1 , 2.5e3 ] , "b":"\\u00fc"} ' },
    { value: null },
  ],
  payload_bytes: [
    { value: new Uint8Array(1_048_577), reason: /larger than 1048576 bytes/, on: ANY_LENGTH },
    { value: 'text', reason: /it is (not bytes|both JSON and bytes)/, on: ['sqlite'] },
    { value: 5, reason: /it is (not bytes|both JSON and bytes)/, on: ['sqlite'] },
    { value: bytes(1, 2, 3) },
    { value: bytes() },
  ],
  payload_size: [
    { value: 0 },
    { value: 1 },
    { value: 2_000_000_000 },
    { value: -5, on: ANY_LENGTH },
    { value: 'large', on: ['sqlite'] },
  ],
  handled_by: [
    { value: '5' },
    { value: '{"a": 1}' },
    { value: '[1, null, {}, "another"]' },
    { value: 'null' },
    { value: 'oops', on: SQL_TEXTS },
  ],
  failures: [
    { value: '5' },
    { value: '{"a": 1}' },
    {
      value: '[null, 5, "x", {}, {"at": "never"}, {"at": 1e300}, {"at": "2026-01-01", "message": {"a": 1}}]',
    },
    { value: 'oops', on: SQL_TEXTS },
  ],
  last_error: [{ value: '' }, { value: 'x'.repeat(100_000) }, { value: '\u001b[2J' }],
  locked_by: [{ value: 'nobody' }, { value: 'nobody:1:solo' }, { value: '' }, { value: '~x:some' }],
  locked_until: [
    { value: '-infinity', on: ['postgres'] },
    { value: '2020-01-01 00:00:00', on: ['postgres', 'mysql'] },
    { value: '0000-00-00 00:00:00', on: ['mysql'] },
    { value: 1, on: ['sqlite'] },
    { value: -9e15, on: ['sqlite'] },
  ],
  available_at: [
    { value: '-infinity', on: ['postgres'] },
    { value: '0001-01-01', on: ['postgres'] },
    { value: '1970-01-01 00:00:01', on: ['postgres', 'mysql'] },
    { value: '0000-00-00 00:00:00', on: ['mysql'] },
    { value: 1, on: ['sqlite'] },
    { value: -1.5, on: ['sqlite'] },
    { value: SMALLEST_INTEGER, on: ['sqlite'] },
    { value: '2026-01-01 00:00:00', reason: NO_MILLISECONDS, on: ['sqlite'] },
    { value: '', reason: NO_MILLISECONDS, on: ['sqlite'] },
    { value: bytes(1), reason: NO_MILLISECONDS, on: ['sqlite'] },
    { value: Number.POSITIVE_INFINITY, reason: NO_MILLISECONDS, on: ['sqlite'] },
    { value: LARGEST_INTEGER, reason: NO_MILLISECONDS, on: ['sqlite'] },
  ],
  created_at: [
    { value: '-infinity', on: ['postgres'] },
    { value: 'infinity', on: ['postgres'] },
    { value: '294276-12-31', on: ['postgres'] },
    { value: '0000-00-00 00:00:00', on: ['mysql'] },
    { value: '9999-12-31 23:59:59', on: ['mysql'] },
    { value: 1, on: ['sqlite'] },
    { value: 'yesterday', on: ['sqlite'] },
    { value: 9e15, on: ['sqlite'] },
    { value: LARGEST_INTEGER, on: ['sqlite'] },
    { value: SMALLEST_INTEGER, on: ['sqlite'] },
  ],
  halts: [
    { value: 1, on: SQL_TEXTS },
    { value: 'true', on: ['postgres'] },
  ],
}

interface ForeignRow {
  readonly column: string
  readonly columns: Columns
  readonly reason: RegExp | undefined
}

/** One row for each value of each column, once with an ordering key and once without. */
export function everyForeignRow(dialect: Dialect): readonly ForeignRow[] {
  const rows: ForeignRow[] = []
  for (const [column, values] of Object.entries(FOREIGN)) {
    for (const { value, reason, on } of values) {
      if (on && !on.includes(dialect)) continue
      for (let twice = 0; twice < 2; twice++) {
        if (twice === 1 && (column === 'event_id' || isLarge(value))) continue
        rows.push({ column, columns: { ...baseRow(column, rows.length), [column]: value }, reason })
      }
    }
  }
  const both = { ...baseRow('payload', rows.length), payload_bytes: bytes(1) }
  return [...rows, { column: 'payload', columns: both, reason: /it is both JSON and bytes/ }]
}

function isLarge(value: Cell): boolean {
  return typeof value === 'string' && value.length > 10_000
}

function baseRow(column: string, n: number): Columns {
  return {
    event_id: `row-${n}`,
    event_type: 'foreign.row',
    ...(n % 2 === 0 ? { ordering_key: `key-${n % 7}` } : {}),
    ...(column === 'payload_bytes' ? {} : { payload: '{"n": 1}' }),
  }
}

/** A row that is made of random values, of which about half are as they should be. */
export function randomRow(dialect: Dialect, seed: number, n: number): { columns: Columns; valid: boolean } {
  const random = randomOf(seed * 100_003 + n)
  const columns: Record<string, Cell> = { ...baseRow('', n) }
  const changed = new Set(['event_id'])
  let valid = true
  for (let left = random.pick([0, 0, 1, 1, 2, 4]); left > 0; left--) {
    const column = random.pick(Object.keys(FOREIGN))
    const { value, reason, on } = random.pick(FOREIGN[column] as readonly ForeignValue[])
    if ((on && !on.includes(dialect)) || changed.has(column)) continue
    // A lease that was lost may charge an attempt.
    if (changed.has(column === 'attempts' ? 'locked_by' : 'attempts') && /attempts|locked_by/.test(column))
      continue
    if (column === 'payload_bytes') {
      if (changed.has('payload')) continue
      columns.payload = null
      changed.add('payload')
    }
    changed.add(column)
    columns[column] = value
    valid &&= reason === undefined
  }
  return { columns, valid }
}

type Seen = { readonly id: string; readonly by: string }

/** Everything that happens to events: handlers, a batch handler, a relay to a strict broker, and what handlers publish. */
export function consumerOf(store: OutboxStore, options: Partial<OutboxOptions<unknown>> = {}) {
  const log = recordLog()
  const seen: Seen[] = []
  const wrong: string[] = []
  const outbox = createOutbox({
    store,
    logger: log.logger,
    poller: { pollIntervalMs: 50, leaseMs: 20_000 },
    retry: { policy: fixedDelay(1), maxAttempts: 3 },
    ...options,
  } as OutboxOptions<unknown>)
  onTestFinished(() => outbox.stop())
  /** Only what `publish()` would have accepted may come this far. */
  const see = (by: string) => (event: EventEnvelope) => {
    seen.push({ id: event.eventId, by })
    try {
      const { payloadText, payloadBytes, occurredAt, ...fields } = event
      const {
        eventId,
        eventType,
        aggregateType,
        aggregateId,
        tenantId,
        orderingKey,
        version,
        headers,
        metadata,
      } = fields
      EventEnvelope.create({
        ...{
          eventId,
          eventType,
          aggregateType,
          aggregateId,
          tenantId,
          orderingKey,
          version,
          headers,
          metadata,
        },
        occurredAt: new Date(event.occurredAtMs),
        payload: event.payload,
      })
      if (occurredAt && (payloadText === null) === (payloadBytes === null))
        throw new Error('no payload, or two')
      const { attributes, contentType, body } = messageOf(event, undefined)
      const received = eventOf({ attributes, contentType, body, deliveryCount: 1 })
      if (JSON.stringify(received) !== JSON.stringify(event)) throw new Error('the broker changes it')
    } catch (error) {
      wrong.push(`${by} got ${event.eventId}: ${error}`)
    }
  }
  return { outbox, log, seen, wrong, see }
}

type Consumer = ReturnType<typeof consumerOf>

export function handleEverything({ outbox, see, wrong }: Consumer): void {
  const note = see('handler')
  const failed = new Set<string>()
  outbox.on('*', 'handler', async (event) => {
    note(event)
    if (event.eventType === 'follow.up') return
    const followUp = { type: 'follow.up', payload: event.payload, headers: event.headers }
    await outbox.enqueue(followUp).catch((error) => wrong.push(`no follow-up of ${event.eventId}: ${error}`))
    if (failed.has(event.eventId) || event.eventId.length % 3 !== 0) return
    failed.add(event.eventId)
    throw new Error('the first attempt fails')
  })
  outbox.onBatch('*', 'batch handler', { size: 20, waitMs: 5 }, (events) => {
    for (const event of events) see('batch handler')(event)
  })
  const publishAll = async (events: readonly EventEnvelope[]) => {
    for (const event of events) see('broker')(event)
    return events.map(({ eventId }) => eventId)
  }
  outbox.relay({
    publishAll,
    publish: async (event: EventEnvelope) => (await publishAll([event]))[0],
  } as never)
}

const isSettled = ({ status }: StoredRow) => status === 1 || status === 3

/** Handles all rows, and checks what holds whatever they are. */
async function handle(table: ForeignTable, consumer: Consumer): Promise<Map<string, StoredRow>> {
  const { outbox, log, wrong } = consumer
  await outbox.start()
  await until('every row is done or dead', async () => (await table.rows()).every(isSettled), 40_000).catch(
    async (error) => {
      const left = (await table.rows()).filter((row) => !isSettled(row))
      const warnings = log.lines('warn').filter(({ msg }) => msg !== 'handler failed')
      const shown = [left.slice(0, 5), warnings.slice(0, 3)].map((one) => JSON.stringify(one).slice(0, 1_000))
      throw new Error(`${error.message}: ${shown.join(' ')}`)
    },
  )
  await outbox.stop()
  expect(wrong).toEqual([])
  const unwanted = log.lines().filter(({ level, msg }) => level === 'warn' && !/^handler failed/.test(msg))
  expect(unwanted).toEqual([])
  const unreadable = log.raw.filter((line) => line.length > 2_000 || /[^\P{Cc}\n]/u.test(line))
  expect(unreadable).toEqual([])
  return new Map((await table.rows()).map((row) => [row.eventId, row]))
}

/** Every value of every column, beside healthy rows. */
export async function rejectsForeignRows(table: ForeignTable): Promise<void> {
  const consumer = consumerOf(table.store)
  await consumer.outbox.migrate()
  handleEverything(consumer)
  const rows = everyForeignRow(table.dialect)
  for (const { columns } of rows) await table.insert(columns)
  const healthy = await insertHealthy(table, 50)
  await handle(table, consumer)
  const stored = await table.rows()
  for (const [n, { columns, reason }] of rows.entries()) {
    const row = stored[n] as StoredRow
    const what = describe(columns)
    expect([what, row.status], row.lastError?.slice(0, 200)).toEqual([what, reason ? 3 : 1])
    if (reason) expect(row.lastError, what).toMatch(reason)
  }
  expectHealthy(stored, healthy, consumer.seen)
  const dead = new Set(stored.filter(({ status }) => status === 3).map(({ eventId }) => eventId))
  expect(consumer.seen.filter(({ id }) => dead.has(id))).toEqual([])
}

async function insertHealthy(table: ForeignTable, count: number): Promise<string[]> {
  const ids = Array.from({ length: count }, (_, n) => `healthy-${n}`)
  for (const [n, event_id] of ids.entries()) {
    const ordering_key = n % 5 === 0 ? `key-${n % 7}` : null
    await table.insert({ event_id, event_type: 'foreign.row', payload: '{"n": 1}', ordering_key })
  }
  return ids
}

/** No neighbour of a bad row is charged an attempt, except for the handler that fails on purpose. */
function expectHealthy(
  stored: readonly StoredRow[],
  healthy: readonly string[],
  seen: readonly Seen[],
): void {
  for (const id of healthy) {
    const { status, attempts } = stored.find(({ eventId }) => eventId === id) as StoredRow
    const failures = id.length % 3 === 0 ? 1 : 0
    expect([id, status, attempts]).toEqual([id, 1, failures])
    for (const by of ['handler', 'batch handler', 'broker']) {
      const times = seen.filter((one) => one.id === id && one.by === by).length
      expect([id, by, times]).toEqual([id, by, by === 'handler' ? 1 + failures : 1])
    }
  }
}

/** Checks the sentences of docs/table-contract.md about rows that a worker may read in an unexpected way. */
export async function readsOddRowsAsDocumented(table: ForeignTable): Promise<void> {
  const { outbox } = consumerOf(table.store)
  await outbox.migrate()
  const odd: Readonly<Record<string, readonly [column: string, value: string]>> = {
    'unknown field': ['metadata', `'{"userId": "u-1", "shoeSize": {"eu": 42}}'`],
    'JSON null': ['metadata', `'null'`],
    'SQL NULL': ['metadata', 'null'],
    fraction: ['version', '1.5'],
    'whole fraction': ['version', '2.0'],
  }
  for (const [id, [column, value]] of Object.entries(odd)) {
    await table.run(
      `insert into outbox_event (event_id, event_type, payload, ${column}) values ('${id}', 'odd', '1', ${value})`,
    )
  }
  const handled = new Map<string, EventEnvelope>()
  outbox.on('odd', 'keep', (event) => void handled.set(event.eventId, event))
  await outbox.drain()
  expect({ ...handled.get('unknown field')?.metadata }).toEqual({ userId: 'u-1' })
  expect({ ...handled.get('JSON null')?.metadata }).toEqual({})
  expect({ ...handled.get('SQL NULL')?.metadata }).toEqual({})
  expect(handled.get('whole fraction')?.version).toBe(2)
  const fraction = (await table.rows()).find(({ eventId }) => eventId === 'fraction')
  if (table.dialect === 'sqlite') {
    expect(handled.has('fraction')).toBe(false)
    expect(fraction).toMatchObject({
      status: 3,
      lastError: expect.stringContaining('an integer of at least 1'),
    })
  } else {
    expect(handled.get('fraction')?.version).toBe(2)
    expect(fraction?.status).toBe(1)
  }
}

/** Rows that no instance handles become dead by the reason that makes them invalid. */
export async function rejectsForeignRowsWithoutHandler(table: ForeignTable): Promise<void> {
  const consumer = consumerOf(table.store, { dispatcher: { unroutableGraceMs: 0 } })
  await consumer.outbox.migrate()
  consumer.outbox.on('another.type', 'note', () => {})
  // A row from the future is not older than the grace.
  const rows = everyForeignRow(table.dialect).filter(({ column }) => column !== 'created_at')
  for (const { columns } of rows) await table.insert(columns)
  await handle(table, consumer)
  for (const [n, row] of (await table.rows()).entries()) {
    const { column, columns, reason } = rows[n] as ForeignRow
    // Nobody would decode the payload, so the claim reads no more than its size.
    const expected = column.startsWith('payload') ? /No consumer|larger than/ : reason
    expect(row.lastError, describe(columns)).toMatch(expected ?? /No consumer/)
    expect(row.status).toBe(3)
  }
}

/** Random rows. The seed is part of every message. */
export async function survivesRandomRows(table: ForeignTable, seed: number, count: number): Promise<void> {
  const consumer = consumerOf(table.store)
  await consumer.outbox.migrate()
  handleEverything(consumer)
  const expected: { columns: Columns; valid: boolean }[] = []
  const healthy: string[] = []
  for (let n = 0; n < count; n++) {
    const row = randomRow(table.dialect, seed, n)
    await table.insert(row.columns)
    expected.push(row)
    if (Object.keys(row.columns).every((name) => name in baseRow('', n))) healthy.push(`row-${n}`)
  }
  await handle(table, consumer)
  const stored = await table.rows()
  for (const [n, { columns, valid }] of expected.entries()) {
    const { status, lastError } = stored[n] as StoredRow
    const what = `seed ${seed}, row ${n}: ${describe(columns)}`
    expect(`${what} ${status}`, lastError?.slice(0, 200)).toBe(`${what} ${valid ? 1 : 3}`)
    if (!valid) expect(lastError, what).toMatch(/\S/)
  }
}

/** What people look at shows such rows, and fails on none of them. */
export async function showsForeignRows(table: ForeignTable, outbox: Outbox<never>): Promise<void> {
  await table.store.migrate()
  const rows = everyForeignRow(table.dialect)
  for (const { columns } of rows) await table.insert(columns)
  for (const status of [3, 1, 2])
    await table.insert({ event_id: `status-${status}`, event_type: 'a', payload: '1', status })
  await table.insert({ event_id: 'status-7', event_type: 'a', payload: '1', status: 7 })
  const records = await table.store.list({ limit: 10_000 })
  expect(records).toHaveLength(rows.length + 4)
  for (const record of records) {
    const { occurredAtMs, availableAt, createdAt, doneAt, lockedUntil, failures, headers, metadata } = record
    for (const date of [new Date(occurredAtMs), availableAt, createdAt])
      expect(() => date.toISOString()).not.toThrow()
    for (const date of [doneAt, lockedUntil]) expect(() => date?.toISOString()).not.toThrow()
    for (const { at, message } of failures)
      expect([at.toISOString(), typeof message]).toEqual([expect.any(String), 'string'])
    for (const value of Object.values({ ...headers, ...metadata })) expect(typeof value).toBe('string')
    expect(typeof record.eventId, describe({ id: record.eventId })).toBe('string')
    expect(['NEW', 'RETRY', 'DONE', 'DEAD']).toContain(record.status)
    expect(Array.isArray(record.handledBy)).toBe(true)
    expect(Number.isInteger(record.attempts)).toBe(true)
  }
  await outbox.stats()
  await outbox.deadLetters.list()
  await outbox.deadLetters.counts()
  await table.store.overview()
  await table.store.diagnose()
}

/** Dead rows of other programs: each foreign value, with a time at which the row seems due, or with other odd times. */
function everyDeadRow(dialect: Dialect): readonly Columns[] {
  const rows = everyForeignRow(dialect).map(({ columns }) => columns)
  const times: readonly Cell[] = {
    postgres: ['infinity', '-infinity', '2000-01-01', '2100-01-01'],
    mysql: ['9999-12-31 23:59:59.999999', '0000-00-00', '2000-01-01', '2100-01-01'],
    sqlite: [9_007_199_254_740_991, 0, -1, 4e12, 'soon', bytes(1), Number.POSITIVE_INFINITY, 1.5],
  }[dialect]
  const odd = times.flatMap((time, n) =>
    ['available_at', 'created_at', 'done_at', 'locked_until', 'occurred_at'].map((column) => ({
      ...baseRow('', n),
      event_id: `${column}-${n}`,
      [column]: time,
    })),
  )
  const bare = { event_id: 'bare', event_type: 'foreign.row' }
  const failed = [
    { ...bare, event_id: 'text', payload: '1', failures: '[{"at": "never"}, 5, null]', last_error: '' },
    { ...bare, event_id: 'object', payload: '1', failures: '{}', handled_by: '"all"' },
  ]
  return [...rows, ...odd, bare, ...failed].map((columns) => ({ ...columns, status: 3 }))
}

/** Dead rows of other programs lack columns that the store fills, or hold odd values in them. */
export async function actsOnDeadForeignRows(table: ForeignTable): Promise<void> {
  await table.store.migrate()
  const rows = everyDeadRow(table.dialect)
  for (const columns of rows) await table.insert(columns)
  const { outbox, seen } = consumerOf(table.store)
  outbox.on('*', 'handler', (event) => void seen.push({ id: event.eventId, by: 'handler' }))
  expect(await outbox.stats()).toMatchObject({ pending: 0, dead: rows.length })
  await outbox.drain()
  expect(seen).toEqual([])

  const listed: EventRecord[] = []
  for (let afterSeq = 0; ; ) {
    const page = await outbox.deadLetters.list({ limit: 50, afterSeq })
    if (page.length === 0) break
    listed.push(...page)
    afterSeq = page.at(-1)?.seq as number
  }
  expect(listed).toHaveLength(rows.length)
  expect(new Set(listed.map(({ seq }) => seq)).size).toBe(rows.length)
  expect(listed.every(({ status }) => status === 'DEAD')).toBe(true)
  const counts = await outbox.deadLetters.counts()
  expect(counts.reduce((sum, { count }) => sum + count, 0)).toBe(rows.length)

  const known = [
    'bare',
    'text',
    'object',
    ...listed.map(({ eventId }) => eventId).filter((id) => /_at-/.test(id)),
  ]
  for (const id of known)
    expect(await outbox.deadLetters.show(id), id).toMatchObject({ eventId: id, status: 'DEAD' })
  for (const id of known.slice(0, 3)) expect(await outbox.deadLetters.retry(id), id).toEqual([id])
  for (const id of known.slice(3)) expect(await outbox.deadLetters.discard(id), id).toEqual([id])
  const left = rows.length - known.length
  expect(await outbox.stats()).toMatchObject({ pending: 3, dead: left })
  expect(await outbox.deadLetters.discard({ all: true }, { limit: 20 })).toHaveLength(20)
  expect(await outbox.deadLetters.retry({ all: true })).toHaveLength(left - 20)
  expect(await outbox.stats()).toMatchObject({ dead: 0 })
}

function describe(columns: Columns): string {
  return Object.entries(columns)
    .filter(([name]) => !['event_id', 'event_type'].includes(name) || columns.payload === undefined)
    .map(
      ([name, value]) =>
        `${name}=${JSON.stringify(value instanceof Uint8Array ? [...value.slice(0, 8)] : value).slice(0, 40)}`,
    )
    .join(' ')
}
