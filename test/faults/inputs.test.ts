import { createPool } from 'mysql2/promise'
import pg from 'pg'
import { describe, expect, inject, it } from 'vitest'
import {
  AftercommitError,
  type Clock,
  createOutbox,
  DuplicateEventError,
  fixedDelay,
  type Outbox,
  type OutboxOptions,
  type OutboxStore,
  systemClock,
} from '../../src/index.js'
import { memoryStore } from '../../src/stores/memory/index.js'
import { mysqlStore } from '../../src/stores/mysql/index.js'
import { postgresStore } from '../../src/stores/postgres/index.js'
import { type SqliteDatabase, sqliteStore } from '../../src/stores/sqlite/index.js'
import type { Database } from '../projects.js'
import { describeOn, isOn } from '../support/databases.js'
import { type LogRecorder, recordLog } from '../support/log-recorder.js'
import { freshMysql } from '../support/mariadb-server.js'
import { flavor } from '../support/mysql-flavor.js'
import { sqliteDrivers, sqliteFolder } from '../support/sqlite-drivers.js'
import { afterwards, migratedDatabase, poolOn } from '../support/trap-kit.js'
import { signal, until } from '../support/waiting.js'

/** Faults that need no broken server: what people publish, throw and name, and clocks that are wrong. */

type AnyStore = OutboxStore<unknown>
type Settings = Omit<OutboxOptions<unknown>, 'store' | 'logger'>

async function onPostgres(): Promise<AnyStore> {
  return postgresStore(poolOn(await migratedDatabase())) as unknown as AnyStore
}

async function onMysql(): Promise<AnyStore> {
  const database = await freshMysql(inject('mysqlUrl') as string)
  afterwards('drop the database', () => database.drop())
  const pool = createPool({ uri: database.url, connectionLimit: 8 })
  afterwards('end the pool', () => pool.end())
  return mysqlStore(pool) as unknown as AnyStore
}

async function onSqlite(): Promise<AnyStore> {
  const folder = sqliteFolder()
  afterwards('remove the file', async () => folder.remove())
  const [driver] = sqliteDrivers()
  if (!driver) throw new Error('no driver of SQLite can be loaded')
  return sqliteStore(() => driver.open(folder.file('inputs.db'))) as unknown as AnyStore
}

const STORES: readonly (readonly [string, () => Promise<AnyStore>, Database])[] = [
  ['memory', async () => memoryStore() as unknown as AnyStore, 'sqlite'],
  ['PostgreSQL', onPostgres, 'postgres'],
  [flavor, onMysql, 'mysql'],
  ['SQLite', onSqlite, 'sqlite'],
]

const nested = (levels: number): unknown => {
  let value: unknown = 'deep'
  for (let n = 0; n < levels; n++) value = [value]
  return value
}

const REFUSED: readonly (readonly [string, unknown, string])[] = [
  ['U+0000', { a: 'x\0y' }, 'INVALID_PAYLOAD'],
  ['a lone surrogate', { a: '\ud800' }, 'INVALID_PAYLOAD'],
  ['more than 1 MB', 'x'.repeat(1_048_577), 'PAYLOAD_TOO_LARGE'],
  ['10,000 levels', nested(10_000), 'INVALID_PAYLOAD'],
  ['a bigint', { a: 1n }, 'INVALID_PAYLOAD'],
  [
    'a toJSON that throws',
    {
      toJSON: () => {
        throw new Error('not today')
      },
    },
    'INVALID_PAYLOAD',
  ],
]

const THROWN: readonly (readonly [string, unknown, RegExp])[] = [
  ['a string', 'just text', /just text/],
  ['nothing', undefined, /undefined/],
  ['null', null, /null/],
  ['a symbol', Symbol('sign'), /sign/],
  ['an object without a prototype', Object.create(null), /./],
  ['NUL, ANSI and half a surrogate', new Error('a\0b \u001b[31mred \ud800 end'), /a.?b .*red .*end/],
  ['a megabyte of text', new Error('m'.repeat(1_048_576)), /mmm/],
]

const NAMES = [`'; drop table outbox_event; --`, '`"$1%s\\', '__proto__', 'Zürich 🚂 שלום', '{"a":[1]}']

describe.each(STORES.filter(([, , database]) => isOn(database)))('on %s,', (_name, open) => {
  async function world(settings: Settings = {}): Promise<{ outbox: Outbox<unknown>; log: LogRecorder }> {
    const log = recordLog()
    const store = await open()
    const outbox = createOutbox({
      store,
      logger: log.logger,
      ...settings,
      poller: { pollIntervalMs: 50, ...settings.poller },
      retry: { policy: fixedDelay(1), maxAttempts: 2, ...settings.retry },
      dispatcher: { drainTimeoutMs: 200, ...settings.dispatcher },
    })
    await outbox.migrate()
    afterwards('stop the outbox', () => outbox.stop())
    return { outbox, log }
  }

  const recordsOf = (outbox: Outbox<unknown>) => outbox.store.list({})

  it.each(REFUSED)(
    'a payload with %s is refused, and its transaction goes on without it',
    async (_w, payload, code) => {
      const { outbox } = await world()
      await outbox.transaction(async (tx) => {
        const refusal = await tx.publish({ type: 'bad', payload }).catch((error: unknown) => error)
        expect(refusal).toBeInstanceOf(AftercommitError)
        expect(refusal).toMatchObject({ code })
        await tx.publish({ type: 'good', payload: 1 })
      })
      expect((await recordsOf(outbox)).map((row) => row.eventType)).toEqual(['good'])
    },
  )

  it('a payload with a key named __proto__ comes back equal and touches no prototype', async () => {
    const { outbox } = await world()
    const payload: unknown = JSON.parse('{"__proto__":{"polluted":true},"constructor":{"prototype":1}}')
    const seen: unknown[] = []
    outbox.on('odd', 'see', (one) => void seen.push(one.payload))
    await outbox.enqueue({ type: 'odd', payload }, { delayMs: 1 })
    await until('it is handled', async () => ((await outbox.poll()) > 0 ? true : seen.length > 0))
    expect(JSON.stringify(seen)).toBe(JSON.stringify([payload]))
    expect(({} as { polluted?: boolean }).polluted).toBeUndefined()
    expect((seen[0] as { polluted?: boolean }).polluted).toBeUndefined()
  })

  it.each(THROWN)(
    'a handler that throws %s fails like any other, and its text is kept',
    async (_w, thrown, text) => {
      const { outbox, log } = await world()
      outbox.on('odd', 'throw', () => {
        throw thrown
      })
      await outbox.start()
      await outbox.enqueue({ type: 'odd', payload: 1 })
      await until('it is dead', async () => (await recordsOf(outbox))[0]?.status === 'DEAD')
      const [row] = await recordsOf(outbox)
      expect(row).toMatchObject({ attempts: 2, lastError: expect.stringMatching(text) })
      expect(row?.failures).toHaveLength(2)
      expect(row?.lastError).not.toContain('\0')
      expect(row?.lastError?.length).toBeLessThanOrEqual(4_000)
      for (const line of log.raw) expect(line.replace(/\n$/, '')).not.toMatch(/[\p{Cc}\u2028\u2029]/u)
    },
  )

  it('an id that exists is refused, and the event that had it first stays as it was', async () => {
    const { outbox } = await world()
    const one = (payload: unknown) => ({ type: 'thing', eventId: 'same', payload })
    await outbox.enqueue(one('first'))
    await expect(outbox.enqueue(one('second'))).rejects.toBeInstanceOf(DuplicateEventError)
    const twice = outbox.transaction((tx) => tx.publishAll([one('third'), { ...one('fourth') }]))
    await expect(twice).rejects.toBeInstanceOf(DuplicateEventError)
    const seen: unknown[] = []
    outbox.on('thing', 'see', (event) => void seen.push(event.payload))
    await outbox.drain()
    expect(seen).toEqual(['first'])
  })

  it.each(NAMES)('%j as type, id, key, handler and pause travels as it is', async (name) => {
    const { outbox } = await world()
    const seen: string[] = []
    outbox.on(name, name, (one) => {
      seen.push(`${one.eventId} ${one.orderingKey}`)
      if (seen.length === 1) throw new Error(name)
    })
    await outbox.enqueue({ type: name, eventId: name, orderingKey: name, aggregateType: name, payload: name })
    await outbox.pause(name)
    expect(await outbox.paused()).toEqual([name])
    await outbox.resume(name)
    await outbox.start()
    await until('it is done', async () => (await recordsOf(outbox))[0]?.status === 'DONE')
    expect(seen).toEqual(Array(2).fill(`${name} ${name}`))
    const [row] = await outbox.store.list({ eventType: name, eventIds: [name] })
    expect(row?.lastError).toContain(name)
  })

  it('a delay, a lease and a timeout of more than 2^31 ms are not over at once', async () => {
    const { outbox } = await world({ poller: { leaseMs: 2 ** 33 } })
    const seen: unknown[] = []
    const aborted: unknown[] = []
    const handler = async ({ payload }: { payload: unknown }, { signal: over }: { signal: AbortSignal }) => {
      over.addEventListener('abort', () => aborted.push(over.reason))
      // A timer that fires at once was set before this one, and would come first.
      await new Promise((resolve) => setTimeout(resolve, 20))
      seen.push(payload)
    }
    outbox.on('thing', 'see', handler, { timeoutMs: 2 ** 31 + 5 })
    await outbox.start()
    await outbox.enqueue({ type: 'thing', payload: 'in a month' }, { delayMs: 2 ** 31 + 5 })
    for (const n of [1, 2, 3]) {
      await outbox.enqueue({ type: 'thing', payload: n }, { delayMs: 1 })
      await until('it is handled', () => seen.includes(n))
    }
    expect(seen).toEqual([1, 2, 3])
    expect(aborted).toEqual([])
  })

  it('an application clock that is off by an hour, and jumps, costs no lease and delivers nothing early', async () => {
    const leaseMs = 1_500
    const { outbox, log } = await world({ poller: { leaseMs }, clock: jumpingClock() })
    const finish = signal()
    const runs: string[] = []
    outbox.on('slow', 'hang', async () => {
      runs.push('slow')
      await finish.promise
    })
    outbox.on('thing', 'see', (one) => void runs.push(String(one.payload)))
    await outbox.start()
    await outbox.enqueue({ type: 'slow', payload: 1 })
    await outbox.enqueue({ type: 'thing', payload: 'in half an hour' }, { delayMs: 1_800_000 })
    await until('it runs', () => runs.includes('slow'))
    const leasedUntil = async () => (await recordsOf(outbox))[0]?.lockedUntil?.getTime() ?? 0
    const first = await leasedUntil()
    await until('three leases have gone by', async () => (await leasedUntil()) > first + 3 * leaseMs)
    await outbox.enqueue({ type: 'thing', payload: 'soon' }, { delayMs: 30 })
    await until('what is due comes', () => runs.includes('soon'))
    finish.give()
    await until('it is done', async () => (await recordsOf(outbox))[0]?.status === 'DONE')
    expect(runs).toEqual(['slow', 'soon'])
    expect(log.matching(/lease/)).toEqual([])
  })
})

/** An hour ahead, an hour behind, and right, from one look to the next; time itself passes as it does. */
function jumpingClock(): Clock {
  let looks = 0
  return {
    now: () => systemClock.now() + ([3_600_000, -3_600_000, 0][looks++ % 3] as number),
    monotonic: () => systemClock.monotonic(),
    setTimer: (callback, delayMs) => systemClock.setTimer(callback, delayMs),
  }
}

describeOn('sqlite', 'a hostile name of a table', () => {
  const hostile = [
    ...NAMES.filter((name) => name !== '__proto__'),
    '',
    'a b',
    'a-b',
    '1st',
    'x'.repeat(64),
    'a\0b',
    'a\nb',
  ]

  it.each(hostile)('%j is refused by every store that has tables', (table) => {
    const pgPool = new pg.Pool({ connectionString: 'postgres://nobody@127.0.0.1:1/none' })
    const mysqlPool = createPool({ uri: 'mysql://nobody@127.0.0.1:1/none' })
    afterwards('end the pools', () => Promise.all([pgPool.end(), mysqlPool.end()]))
    const refusal = expect.objectContaining({ name: 'InvalidSettingError', setting: 'table' })
    expect(() => postgresStore(pgPool, { table })).toThrow(refusal)
    expect(() => mysqlStore(mysqlPool, { table })).toThrow(refusal)
    const none = () => {
      throw new Error('not opened')
    }
    expect(() => sqliteStore(none as () => SqliteDatabase, { table })).toThrow(refusal)
  })
})
