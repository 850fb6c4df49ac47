import { describe, expect, it } from 'vitest'
import { AftercommitError, InvalidSettingError } from '../../src/index.js'
import { postgresStore } from '../../src/stores/postgres/index.js'
import { event, migratedDatabase, outboxOn, poolOn, rowsIn } from '../support/trap-kit.js'
import { until } from '../support/waiting.js'

/** Names come from people: none of them reaches SQL as SQL, the terminal as a command, or another event's handler. */

const QUOTES = [
  `'; drop table outbox_event; --`,
  `"; drop table outbox_event; --`,
  `$1`,
  `$$; select 1; $$`,
  `a\\'b`,
  `%s%n`,
  '{a,b}',
  'Zürich 🚂 שלום',
  '../../etc/passwd',
  '__proto__',
  'constructor',
  'toString',
  'null',
  '{"json": "x"}',
  'line\u2028separator',
]
const CONTROLS = ['a\nb', 'a\r\nb', 'a\x1b[31mred', 'a\u0000b', 'a\x1eb', 'a\x1fb', 'a\ud800b', 'a\u009bb']

describe('a table or schema name', () => {
  const hostile = [
    ...QUOTES,
    ...CONTROLS,
    '',
    ' ',
    'Outbox',
    'outbox-event',
    'public.outbox',
    '1st',
    'x'.repeat(41),
  ]

  it.each(hostile)('%j is refused', (name) => {
    const pool = poolOn('postgres://nobody@127.0.0.1:1/none')
    for (const setting of ['table', 'schema'] as const) {
      const make = () => postgresStore(pool, { [setting]: name })
      // `__proto__` and the like are plain identifiers for PostgreSQL.
      if (/^[a-z_][a-z0-9_]{0,39}$/.test(name)) expect(make).not.toThrow()
      else expect(make).toThrow(expect.objectContaining({ name: 'InvalidSettingError', setting }))
    }
  })

  it.each([undefined, 'select', 'user', 'x'.repeat(40)])('%s works, with its doorbell', async (table) => {
    const url = await migratedDatabase()
    const pool = poolOn(url)
    const { outbox, log } = outboxOn(pool, {}, table === undefined ? {} : { table })
    await outbox.migrate()
    const handled: string[] = []
    outbox.on('thing.happened', 'see', (one) => void handled.push(one.eventId))
    await outbox.start()
    const id = await outbox.enqueue(event())
    await until('it is handled', () => handled.includes(id))
    expect(log.lines('warn')).toEqual([])
  })
})

describe('an event type, id, key or handler name', () => {
  it.each(QUOTES)('%j travels as it is, hot, cold, failing and dead', async (name) => {
    const pool = poolOn(await migratedDatabase())
    const { outbox } = outboxOn(pool, { retry: { maxAttempts: 2, policy: { delayMs: () => 1 } } })
    const seen: string[] = []
    outbox.on(name, name, (one) => void seen.push(`${one.eventId} ${one.eventType} ${one.aggregateType}`))
    outbox.on(name, `${name}, failing`, (one) => {
      if (one.eventId === 'failing') throw new Error(name)
    })
    outbox.on('innocent', 'see', () => void seen.push('innocent'))
    await outbox.start()
    const one = { type: name, payload: name, aggregateType: name, aggregateId: name, tenantId: name }
    await outbox.enqueue({ ...one, eventId: name, headers: { key: name } })
    await outbox.enqueue({ ...one, eventId: `${name.slice(0, 50)} cold` }, { delayMs: 1 })
    await outbox.enqueue({ ...one, eventId: 'failing' })
    await until('all are settled', async () => (await outbox.stats()).pending === 0)
    expect(seen.sort()).toEqual(
      [name, `${name.slice(0, 50)} cold`, 'failing'].map((id) => `${id} ${name} ${name}`).sort(),
    )
    expect(await outbox.deadLetters.retry(`no such ${name}`)).toEqual([])
    expect(await outbox.deadLetters.discard({ eventType: name })).toEqual(['failing'])
    expect(await rowsIn(pool)).toHaveLength(2)
  })

  it.each(CONTROLS)('%j is refused as type and id, and writes nothing', async (name) => {
    const pool = poolOn(await migratedDatabase())
    const { outbox } = outboxOn(pool)
    await expect(outbox.enqueue(event(name))).rejects.toBeInstanceOf(AftercommitError)
    await expect(outbox.enqueue({ type: 'x', payload: 1, eventId: name })).rejects.toBeInstanceOf(
      AftercommitError,
    )
    expect(await rowsIn(pool)).toEqual([])
  })

  it.each(CONTROLS)('%j is refused as the event of a handler', async (name) => {
    const { outbox } = outboxOn(poolOn('postgres://nobody@127.0.0.1:1/none'))
    expect(() => outbox.on(name, 'h', () => {})).toThrow(InvalidSettingError)
    expect(() => outbox.on({ aggregateType: name, type: 'x' }, 'h', () => {})).toThrow(InvalidSettingError)
  })

  it.each(CONTROLS)('%j as the name of a handler is refused, or its failures are recorded', async (name) => {
    const pool = poolOn(await migratedDatabase())
    const { outbox, log } = outboxOn(pool, { retry: { maxAttempts: 1 } })
    try {
      outbox.on('thing.happened', name, () => {
        throw new Error('always')
      })
    } catch (error) {
      expect(error).toBeInstanceOf(InvalidSettingError)
      expect((error as Error).message).not.toMatch(/\p{Cc}/u)
      return
    }
    outbox.on('thing.happened', 'fine', () => {})
    await outbox.start()
    await outbox.enqueue(event())
    await until('it is dead', async () => (await rowsIn(pool))[0]?.status === 3, 3_000)
    for (const line of log.raw) expect(line.trimEnd()).not.toMatch(/\p{Cc}|\u2028/u)
  })
})

describe('a row that a stranger wrote', () => {
  it('with control characters in its type, id and aggregate keeps them out of the terminal', async () => {
    const pool = poolOn(await migratedDatabase())
    const { outbox, log } = outboxOn(pool, { retry: { maxAttempts: 1 } })
    outbox.on('*', 'fail', (one) => {
      throw new Error(`bad: ${one.eventType}\r\n\x1b[31m\x9b31m\u2028 end`)
    })
    await outbox.start()
    const evil = 'evil\r\n{"level":"error","msg":"forged"}\x1b[2J\u009b31m\u2028'
    await pool.query(
      `insert into outbox_event (event_id, event_type, aggregate_type, metadata) values ($1, $2, $2, $3)`,
      [`id ${evil}`, `type ${evil}`, JSON.stringify({ correlationId: evil })],
    )
    await until('it is dead', () => log.matching(/event is dead/).length === 1)
    for (const line of log.raw) expect(line.replace(/\n$/, '')).not.toMatch(/[\p{Cc}\u2028\u2029]/u)
    expect(log.matching(/forged/)).toEqual([])
    expect(log.matching(/event is dead/)[0]?.event_type).toBe('(invalid)')
  })

  it.each([
    ['headers that are a list', `headers`, `'[1, 2]'`],
    ['headers that are a number', `headers`, `'5'`],
    ['metadata that is text', `metadata`, `'"text"'`],
    ['JSON null for headers', `headers`, `'null'`],
    ['a payload with an escaped NUL', `payload`, `'"a\\u0000b"'`],
    ['a payload with a lone surrogate', `payload`, `'"\\ud800"'`],
    ['a payload 5,000 levels deep', `payload`, `(repeat('[', 5000) || repeat(']', 5000))::json`],
    ['a payload and bytes at once', `payload, payload_bytes`, `'1', '\\x01'`],
    ['a negative version', `version`, `-5`],
    ['a moment in infinity', `occurred_at`, `'infinity'`],
    ['a moment before the common era', `occurred_at`, `'4713-01-01 BC'`],
    ['handlers that are no list', `handled_by`, `'{"a": 1}'`],
  ])('with %s is settled one way or another, and the next row is handled', async (_what, columns, values) => {
    const pool = poolOn(await migratedDatabase())
    const { outbox } = outboxOn(pool, { retry: { maxAttempts: 1 } })
    const handled: string[] = []
    outbox.on('thing.happened', 'see', (one) => void handled.push(one.eventId))
    await pool.query(
      `insert into outbox_event (event_id, event_type, ${columns}) values ('odd', 'thing.happened', ${values})`,
    )
    await outbox.start()
    const id = await outbox.enqueue(event(), { delayMs: 1 })
    await until('the next one is handled', () => handled.includes(id), 5_000)
    await until(
      'the odd one is settled',
      async () => [1, 3].includes((await rowsIn(pool))[0]?.status ?? 0),
      5_000,
    )
  })
})
