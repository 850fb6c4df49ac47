import { PGlite } from '@electric-sql/pglite'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { exactlyOnce } from '../../../src/inbox/index.js'
import { AftercommitError, createOutbox } from '../../../src/index.js'
import { DeadLetters } from '../../../src/outbox/dead-letters.js'
import { Outbox as OutboxClass } from '../../../src/outbox.js'
import { statement } from '../../../src/stores/postgres/driver.js'
import { PGliteDriver } from '../../../src/stores/postgres/drivers/pglite.js'
import { postgresStore } from '../../../src/stores/postgres/index.js'
import { namesOf } from '../../../src/stores/postgres/names.js'
import { PostgresStore } from '../../../src/stores/postgres/store.js'
import { recordLog } from '../../support/log-recorder.js'
import {
  inside,
  NEEDS_A_SESSION,
  NEEDS_NO_SESSION,
  refusesToWaitForHandlers,
  WAITS_FOR_HANDLERS,
} from '../../support/outbox-calls.js'
import { afterwards, event, migratedDatabase, poolOn } from '../../support/trap-kit.js'
import { gate } from '../../support/until.js'
import { until } from '../../support/waiting.js'

const STARTED_OR_NOT = ['start', 'stop', 'asyncDispose']

/** One for all tests, because it takes seconds to start. */
let database: PGlite
beforeAll(async () => {
  database = await PGlite.create()
}, 120_000)
afterAll(() => database.close())

async function pglite(options: { schema?: string; table?: string } = {}) {
  if (options.schema) await database.exec(`create schema if not exists "${options.schema}"`)
  const log = recordLog()
  const outbox = createOutbox({ store: postgresStore(database, options), logger: log.logger })
  afterwards('stop the outbox', () => outbox.stop())
  await outbox.migrate()
  const names = namesOf(options)
  await database.exec(`truncate ${names.events}, ${names.inbox}, ${names.instances}, ${names.pauses}`)
  return { outbox, log }
}

describe('a transaction on PGlite', () => {
  it('is tested with every method of an outbox', () => {
    const methods = [
      ...Object.getOwnPropertyNames(OutboxClass.prototype),
      ...Object.getOwnPropertyNames(DeadLetters.prototype).map((name) => `deadLetters.${name}`),
    ].filter((name) => !name.endsWith('constructor'))
    const groups = [NEEDS_A_SESSION, NEEDS_NO_SESSION, WAITS_FOR_HANDLERS]
    const tested = [...groups.flatMap(Object.keys), ...STARTED_OR_NOT]
    expect(methods.filter((name) => !tested.includes(name))).toEqual([])
  })

  it.each(Object.entries(NEEDS_A_SESSION))(
    '%s is refused with its name, and what to do',
    async (name, call) => {
      const { outbox } = await pglite()
      const error = await inside(outbox as never, call)
      expect(error).toBeInstanceOf(AftercommitError)
      expect(error).toMatchObject({ name: 'NestedTransactionError', code: 'NESTED_TRANSACTION' })
      const { message } = error as Error
      expect(message).toContain(`${name}() cannot run inside the open transaction: PGlite has one session`)
      expect(message).toMatch(/before the transaction begins or after its commit/)
      if (name === 'enqueue') expect(message).toContain('publish()')
    },
  )

  it.each(Object.entries(NEEDS_NO_SESSION))('%s works', async (_name, call) => {
    const { outbox } = await pglite()
    expect(await inside(outbox as never, call)).not.toBeInstanceOf(Error)
  })

  it('refuses calls that wait for handlers', async () => {
    const { outbox } = await pglite()
    await refusesToWaitForHandlers(outbox as never)
  })

  it('refuses start(), and stop() once the outbox is started', async () => {
    const { outbox } = await pglite()
    const refused = { code: 'NESTED_TRANSACTION' }
    expect(await inside(outbox as never, () => outbox.stop())).toBeUndefined()
    await outbox.transaction(async () => {
      await expect(outbox.start()).rejects.toMatchObject({ ...refused, method: 'start()' })
    })
    await outbox.start()
    await outbox.transaction(async () => {
      await expect(outbox.stop()).rejects.toMatchObject({ ...refused, method: 'stop()' })
      await expect(outbox[Symbol.asyncDispose]()).rejects.toMatchObject(refused)
    })
    await outbox.stop()
  })

  it.each(['stats', 'deadLetters.list', 'pause', 'enqueue', 'drain'] as const)(
    'refuses %s of a started outbox, and delivers what it published',
    async (name) => {
      const { outbox } = await pglite()
      const handled: string[] = []
      outbox.on('thing.happened', 'see', (one) => void handled.push(one.eventId))
      await outbox.start()
      await outbox.transaction(async (tx) => {
        const call = { ...NEEDS_A_SESSION, ...WAITS_FOR_HANDLERS }[name]
        await expect((async () => call?.(outbox as never, tx))()).rejects.toMatchObject({
          code: 'NESTED_TRANSACTION',
        })
        await tx.publish({ type: 'thing.happened', payload: 1, eventId: 'e' })
      })
      await until('the event is handled', () => handled.includes('e'))
    },
  )

  it('refuses the same in a savepoint, and of another outbox on the same database', async () => {
    const { outbox } = await pglite()
    const other = createOutbox({ store: postgresStore(database) })
    await outbox.transaction((tx) =>
      tx.transaction(async () => {
        await expect(outbox.stats()).rejects.toMatchObject({ code: 'NESTED_TRANSACTION' })
        await expect(other.stats()).rejects.toMatchObject({ code: 'NESTED_TRANSACTION' })
        await expect(other.transaction(async () => {})).rejects.toMatchObject({ code: 'NESTED_TRANSACTION' })
      }),
    )
  })

  it('refuses a handler that begins a transaction of its own', async () => {
    const { outbox } = await pglite()
    const once = exactlyOnce({ name: 'h', handle: () => {} }, outbox)
    await outbox.transaction(async () => {
      await expect((async () => once.handle(eventOf('e-1')))()).rejects.toMatchObject({
        code: 'NESTED_TRANSACTION',
      })
    })
  })

  it('lets calls wait that are made outside of it meanwhile', async () => {
    const { outbox } = await pglite()
    const { opened, open } = gate()
    const begun = gate()
    const transaction = outbox.transaction(async (tx) => {
      begun.open()
      await opened
      await tx.publish(event())
    })
    await begun.opened
    const stats = outbox.stats()
    open()
    await transaction
    expect((await stats).pending).toBe(1)
  })

  it('is over for calls that it started and did not await', async () => {
    const { outbox } = await pglite()
    const { opened, open } = gate()
    let late: Promise<unknown> = Promise.resolve()
    await outbox.transaction(async (tx) => {
      late = opened.then(() => outbox.stats())
      await tx.publish(event())
    })
    open()
    expect(await late).toMatchObject({ pending: 1 })
  })

  it('of the application ends a call inside it with STORE_BUSY instead of a deadlock', async () => {
    const driver = new PGliteDriver(database as never, 100)
    const one = statement('select 1')
    await database.transaction(async () => {
      await expect(driver.query(one, [])).rejects.toMatchObject({ code: 'STORE_BUSY' })
      await expect(driver.transaction(async () => {})).rejects.toMatchObject({ code: 'STORE_BUSY' })
      await expect(driver.listen('c', () => {})).rejects.toMatchObject({ code: 'STORE_BUSY' })
    })
    let bodies = 0
    expect(await driver.query(one, [])).toEqual([[1]])
    await driver.transaction(async () => void bodies++)
    expect(bodies).toBe(1)
  })

  it('keeps a statement from running that was rejected with STORE_BUSY', async () => {
    const { outbox } = await pglite()
    await outbox.enqueue(event())
    const store = new PostgresStore(new PGliteDriver(database as never, 100), {})
    await store.open({ onRing: () => {}, onWarning: () => {} })
    afterwards('close the store', () => store.close())
    const claim = {
      token: 'a:1',
      leaseMs: 60_000,
      limit: 10,
      maxBytes: 1_000_000,
      fromSeq: 0,
      skipRecentMs: 0,
      suspects: 0,
      accept: { names: [], versions: [], prefixes: [''] },
    }
    const calls = {
      claim: () => store.claim(claim),
      pause: () => store.pause('thing.paused'),
      heartbeat: () =>
        store.heartbeat({
          id: 'late',
          host: 'h',
          pid: 1,
          version: '1',
          handlers: {},
          accept: { names: [], versions: [], prefixes: [] },
          counters: { done: 0, failed: 0, dead: 0 },
        }),
    }
    await database.transaction(async () => {
      for (const call of Object.values(calls))
        await expect(call()).rejects.toMatchObject({ code: 'STORE_BUSY' })
    })
    const { rows } = await database.query('select locked_by from outbox_event')
    expect(rows).toEqual([{ locked_by: null }])
    expect(await store.paused()).toEqual([])
    expect(await store.instances(60_000)).toEqual([])
    expect((await store.claim(claim)).rows).toHaveLength(1)
  })
})

describe('a pool of one connection', () => {
  it.each(Object.entries(NEEDS_A_SESSION))('refuses %s in a transaction', async (_name, call) => {
    const pool = poolOn(await migratedDatabase(), { max: 1 })
    const outbox = createOutbox({ store: postgresStore(pool) })
    const error = await inside(outbox as never, call)
    expect(error).toMatchObject({ code: 'NESTED_TRANSACTION' })
    expect((error as Error).message).toContain('the pool has 1 connections')
  })

  it('is no obstacle to a transaction on a connection that is not of the pool', async () => {
    const url = await migratedDatabase()
    const pool = poolOn(url, { max: 1 })
    const client = new pg.Client({ connectionString: url })
    await client.connect()
    afterwards('close the client', () => client.end())
    const outbox = createOutbox({ store: postgresStore(pool) })
    await client.query('begin')
    await outbox.publish(event(), { tx: client as never })
    expect((await outbox.stats()).pending).toBe(0)
    await client.query('commit')
    expect((await outbox.stats()).pending).toBe(1)
  })

  it.each([1, 2, 10])(
    'refuses calls that wait for handlers in a transaction of a pool of %i',
    async (max) => {
      const pool = poolOn(await migratedDatabase(), { max })
      await refusesToWaitForHandlers(createOutbox({ store: postgresStore(pool) }) as never)
    },
  )

  it('of two connections lets every other call through', async () => {
    const pool = poolOn(await migratedDatabase(), { max: 2 })
    const outbox = createOutbox({ store: postgresStore(pool) })
    for (const call of Object.values(NEEDS_A_SESSION)) {
      const result = await inside(outbox as never, call)
      expect(result).not.toBeInstanceOf(Error)
      await outbox.resume()
      await pool.query('delete from outbox_event')
    }
  })
})

describe('the doorbell on PGlite', () => {
  const names = [
    { schema: 'outbox' },
    { schema: 'outbox', table: 'user' },
    { schema: 'select', table: 'order' },
    { table: 'select' },
    { table: '__proto__' },
    { schema: 'a'.repeat(40), table: 'b'.repeat(40) },
  ]

  it.each(names.map((one) => [namesOf(one).events, one] as const))(
    'rings for %s and is silent after the stop',
    async (_name, options) => {
      const { outbox, log } = await pglite(options)
      const handled: string[] = []
      outbox.on('thing.happened', 'see', (one) => void handled.push(one.eventId))
      await outbox.start()
      const { publish } = namesOf(options)
      await database.query(`select ${publish}('thing.happened')`)
      await until('the event is handled', () => handled.length === 1)
      expect(log.lines('warn')).toEqual([])
      await outbox.stop()
      const listening = await database.query<{ channel: string }>('select pg_listening_channels() as channel')
      expect(listening.rows).toEqual([])
      // It can be started again.
      await outbox.start()
      await outbox.enqueue(event())
      await until('the second event is handled', () => handled.length === 2)
      await outbox.stop()
    },
  )
})

function eventOf(eventId: string) {
  return { eventId } as never
}
