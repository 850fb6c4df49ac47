import { beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest'
import { exactlyOnce } from '../../../src/inbox/index.js'
import {
  createOutbox,
  defineEvent,
  type EventEnvelope,
  fixedDelay,
  silentLogger,
} from '../../../src/index.js'
import { type SqliteDatabase, sqliteStore } from '../../../src/stores/sqlite/index.js'
import {
  inside,
  NEEDS_A_SESSION,
  NEEDS_NO_SESSION,
  refusesToWaitForHandlers,
} from '../../support/outbox-calls.js'
import { type SqliteDriver, sqliteDrivers, sqliteFolder } from '../../support/sqlite-drivers.js'
import { turns, until } from '../../support/until.js'

const Thing = defineEvent<{ n: number }>('thing.happened')

interface World {
  readonly file: string
  readonly store: ReturnType<typeof sqliteStore>
  readonly outbox: ReturnType<typeof createOutbox<SqliteDatabase>>
  readonly handled: string[]
  /** A connection of the application's own. */
  connect(): SqliteDatabase
  count(table: string): number
}

/** A file with a table of the application's, and a started outbox that handles everything. */
async function newWorld({ open }: SqliteDriver): Promise<World> {
  const folder = sqliteFolder()
  const file = folder.file('app.db')
  const connections: SqliteDatabase[] = []
  const connect = () => {
    const connection = open(file)
    connections.push(connection)
    return connection
  }
  const store = sqliteStore(() => open(file))
  const outbox = createOutbox({ store, logger: silentLogger, retry: { policy: fixedDelay(0) } })
  const handled: string[] = []
  outbox.on('*', 'note', (event) => void handled.push(event.eventId))
  onTestFinished(async () => {
    await outbox.stop()
    await store.close()
    for (const connection of connections) connection.close()
    folder.remove()
  })
  await outbox.migrate()
  const own = connect()
  own.exec('create table account (id text primary key, n integer not null)')
  await outbox.start()
  const count = (table: string) => {
    const [row] = own.prepare(`select count(*) as n from ${table}`).all() as [{ n: number }]
    return Number(row.n)
  }
  return { file, store, outbox, handled, connect, count }
}

const hasCode = (code: string) => expect.objectContaining({ code })

describe.each(sqliteDrivers())('transactions by $name', (driver) => {
  let world: World
  beforeEach(async () => {
    world = await newWorld(driver)
  })

  it('a commit is handled from memory, with what the application wrote', async () => {
    const { outbox, handled, count, store } = world
    const claim = vi.spyOn(store, 'claim')
    const id = await outbox.transaction(async (tx) => {
      tx.client.exec(`insert into account values ('a', 1)`)
      return tx.publish(Thing({ n: 1 }))
    })
    await until(() => handled.length > 0)
    for (const { value } of claim.mock.settledResults) expect(value.rows).toEqual([])
    expect([handled, count('account')]).toEqual([[id], 1])
    await until(async () => (await store.list({ status: 'DONE' })).length === 1)
  })

  it('a rollback leaves nothing', async () => {
    const { outbox, handled, count } = world
    const failure = new Error('business rule')
    const result = outbox.transaction(async (tx) => {
      tx.client.exec(`insert into account values ('a', 1)`)
      await tx.publish(Thing({ n: 1 }))
      throw failure
    })
    await expect(result).rejects.toBe(failure)
    await outbox.drain()
    expect([handled, count('account'), count('outbox_event')]).toEqual([[], 0, 0])
  })

  it("publishes in the transaction of the caller's own connection", async () => {
    const { outbox, connect, handled, count } = world
    const own = connect()
    own.exec('BEGIN IMMEDIATE')
    own.exec(`insert into account values ('a', 1)`)
    await outbox.publish(Thing({ n: 1 }), { tx: own })
    own.exec('ROLLBACK')
    expect([count('account'), count('outbox_event')]).toEqual([0, 0])

    own.exec('BEGIN IMMEDIATE')
    const id = await outbox.publish(Thing({ n: 2 }), { tx: own })
    await turns(20)
    expect(handled).toEqual([])
    own.exec('COMMIT')
    await outbox.drain()
    expect(handled).toEqual([id])
  })

  it('refuses to publish outside of a transaction, and commits nothing by itself', async () => {
    const { outbox, connect, count } = world
    const own = connect()
    await expect(outbox.publish(Thing({ n: 1 }))).rejects.toEqual(hasCode('NO_ACTIVE_TRANSACTION'))
    await expect(outbox.publish(Thing({ n: 1 }), { tx: own })).rejects.toEqual(hasCode('TRANSACTION_ENDED'))
    own.exec('BEGIN IMMEDIATE')
    own.exec('COMMIT')
    await expect(outbox.publish(Thing({ n: 1 }), { tx: own })).rejects.toEqual(hasCode('TRANSACTION_ENDED'))
    expect(count('outbox_event')).toBe(0)
  })

  it("begins and ends a transaction on the caller's idle client, and leaves its settings alone", async () => {
    const { outbox, connect, handled } = world
    const own = connect()
    own.exec('PRAGMA busy_timeout = 1234')
    const id = await outbox.transaction(own, (tx) => {
      expect(tx.client).toBe(own)
      return tx.publish(Thing({ n: 1 }))
    })
    await until(() => handled.includes(id))
    expect(own.prepare('PRAGMA busy_timeout').all()).toEqual([expect.objectContaining({ timeout: 1234 })])
    own.exec('BEGIN')
    await expect(outbox.transaction(own, async () => {})).rejects.toEqual(hasCode('CLIENT_IN_TRANSACTION'))
    own.exec('ROLLBACK')
  })

  it('fifty at once, with awaits between their statements, do not mix', async () => {
    const { outbox, count, store } = world
    const kept: string[] = []
    const run = async (n: number) => {
      const result = outbox.transaction(async (tx) => {
        tx.client.exec(`insert into account values ('${n} first', ${n})`)
        await turns(n % 3)
        const id = await tx.publish(Thing({ n }))
        await turns((n + 1) % 3)
        tx.client.exec(`insert into account values ('${n} second', ${n})`)
        if (n % 5 === 0) throw new Error('roll back')
        return id
      })
      if (n % 5 === 0) await expect(result).rejects.toThrow('roll back')
      else kept.push(await result)
    }
    await Promise.all(Array.from({ length: 50 }, (_, n) => run(n)))
    expect(count('account')).toBe(80)
    const ids = (await store.list({ limit: 1_000 })).map((row) => row.eventId)
    expect([...ids].sort()).toEqual([...kept].sort())
  })

  it('claims, settles and other stores on the file take their turn behind an open transaction', async () => {
    const { outbox, store, connect } = world
    const other = createOutbox({ store: sqliteStore(connect), logger: silentLogger })
    await other.enqueue(Thing({ n: 0 }))
    const order: string[] = []
    let isInside = () => {}
    const inside = new Promise<void>((resolve) => {
      isInside = resolve
    })
    const first = outbox.transaction(async (tx) => {
      isInside()
      await tx.publish(Thing({ n: 1 }))
      await turns(20)
      order.push('first')
    })
    await inside
    const second = other.enqueue(Thing({ n: 2 })).then(() => order.push('second'))
    const third = store.pause('nothing').then(() => order.push('third'))
    await Promise.all([first, second, third])
    expect(order).toEqual(['first', 'second', 'third'])
  })

  it('what would wait for the transaction around it is refused at once, and the transaction goes on', async () => {
    const { outbox, store, connect, count } = world
    const other = createOutbox({ store: sqliteStore(connect), logger: silentLogger })
    const began = performance.now()
    await outbox.transaction(async (tx) => {
      await tx.publish(Thing({ n: 1 }))
      for (const attempt of [
        () => outbox.enqueue(Thing({ n: 2 })),
        () => other.enqueue(Thing({ n: 3 })),
        () => store.pause('thing.happened'),
      ]) {
        await expect(attempt()).rejects.toEqual(hasCode('NESTED_TRANSACTION'))
      }
      await outbox.transaction((inner) => inner.publish(Thing({ n: 4 })))
    })
    expect(performance.now() - began).toBeLessThan(2_000)
    expect(count('outbox_event')).toBe(2)
    await outbox.enqueue(Thing({ n: 5 }))
    expect(count('outbox_event')).toBe(3)
  })

  it.each(Object.entries({ ...NEEDS_A_SESSION, ...NEEDS_NO_SESSION }))(
    '%s works in a transaction, or is refused with its name',
    async (name, call) => {
      const { outbox } = world
      const result = await inside(outbox as never, call)
      if (!(result instanceof Error)) return
      expect(result).toMatchObject({ code: 'NESTED_TRANSACTION' })
      expect(result.message).toContain(
        `${name}() cannot run inside the open transaction: it writes to the same SQLite file`,
      )
    },
  )

  it('calls that wait for handlers are refused in a transaction', () =>
    refusesToWaitForHandlers(world.outbox as never))

  it('an id that is published again after its savepoint failed is handled once', async () => {
    const { outbox, handled } = world
    const one = Thing({ n: 1 }).toEnvelope()
    await outbox.transaction(async (tx) => {
      const nested = tx.transaction(async (inner) => {
        await inner.publish(one)
        throw new Error('only the savepoint')
      })
      await expect(nested).rejects.toThrow('only the savepoint')
      await tx.publish(one)
    })
    await until(() => handled.length > 0)
    await outbox.drain()
    expect(handled).toEqual([one.eventId])
  })

  it("rows behind the application's own ROLLBACK TO are not handled", async () => {
    const { outbox, handled } = world
    const kept = await outbox.transaction(async (tx) => {
      const id = await tx.publish(Thing({ n: 1 }))
      tx.client.exec('SAVEPOINT mine')
      await tx.publish(Thing({ n: 2 }))
      tx.client.exec('ROLLBACK TO mine')
      return id
    })
    await until(() => handled.length > 0)
    await outbox.drain()
    expect(handled).toEqual([kept])
  })

  it.each(['ROLLBACK', 'COMMIT', `insert or rollback into account values ('a', 1)`])(
    'a transaction that is gone before its end is noticed: %s',
    async (statement) => {
      const { outbox, handled, store } = world
      await outbox.transaction(async (tx) => tx.client.exec(`insert into account values ('a', 1)`))
      const result = outbox.transaction(async (tx) => {
        await tx.publish(Thing({ n: 1 }))
        try {
          tx.client.exec(statement)
        } catch {}
      })
      const code = statement === 'COMMIT' ? 'COMMIT_UNKNOWN' : 'TRANSACTION_ROLLED_BACK'
      await expect(result).rejects.toEqual(hasCode(code))
      await outbox.drain()
      if (statement !== 'COMMIT') expect([handled, await store.list({})]).toEqual([[], []])
      await outbox.enqueue(Thing({ n: 2 }))
    },
  )

  // libsql ends the transaction of a closed connection only when its statements are garbage.
  it.skipIf(driver.name === 'libsql')('a connection that the application closed is replaced', async () => {
    const { outbox, handled } = world
    const result = outbox.transaction(async (tx) => void tx.client.close())
    await expect(result).rejects.toThrow()
    const id = await outbox.enqueue(Thing({ n: 1 }))
    await until(() => handled.includes(id))
  })

  it('a row of another writer with broken fields does not hold up the others', async () => {
    const { outbox, handled, connect, store } = await newWorld(driver)
    const insert = `insert into outbox_event (event_id, event_type, payload, headers, metadata, handled_by, failures)
      values ('odd', 'thing.happened', '{"n":1}', null, null, '{', 'nothing'),
        ('broken', 'thing.happened', '{"n":1}', 'oops', '[1', '{', 'nothing')`
    connect().exec(insert)
    await outbox.enqueue(Thing({ n: 2 }, { eventId: 'good' }))
    const statusOf = async (id: string) => (await store.list({ eventIds: [id] }))[0]?.status
    await until(async () => handled.length === 2 && (await statusOf('broken')) === 'DEAD')
    expect([...handled].sort()).toEqual(['good', 'odd'])
    const [broken] = await store.list({ eventIds: ['broken'] })
    expect(broken).toMatchObject({ headers: null, lastError: expect.stringContaining('Invalid headers') })
    expect(() =>
      connect().exec(`insert into outbox_event (event_id, event_type, ordering_key) values ('k', 't', '')`),
    ).toThrow(/CHECK/)
  })

  it('an exactly-once handler has one effect, however often it is run', async () => {
    const { outbox, count, store } = world
    const Paid = defineEvent<{ n: number }>('payment.received')
    const addUp = exactlyOnce(async (event: EventEnvelope<{ n: number }>, { tx }) => {
      const { n } = event.payload
      tx.client.exec(`insert into account values ('${event.eventId}', ${n})`)
      await turns(1)
      await tx.publish(Thing({ n }))
    }, outbox)
    outbox.on(Paid, 'add-up', async (event, context) => {
      await addUp(event, context)
      if (context.attempt === 1) throw new Error('as if the process died here')
    })
    await outbox.transaction((tx) => tx.publishAll(Array.from({ length: 20 }, (_, n) => Paid({ n }))))
    await until(async () => (await store.stats()).pending === 0)
    expect([count('account'), (await store.list({ eventType: 'thing.happened' })).length]).toEqual([20, 20])
    expect((await store.list({ eventType: 'payment.received' })).map((row) => row.attempts)).toEqual(
      Array.from({ length: 20 }, () => 1),
    )
  })

  it('waits without blocking for a lock that somebody else holds', async () => {
    const { outbox, connect } = world
    const own = connect()
    own.exec('BEGIN IMMEDIATE')
    let isDone = false
    const enqueued = outbox.enqueue(Thing({ n: 1 })).then(() => {
      isDone = true
    })
    let ticks = 0
    const ticking = setInterval(() => ticks++, 10)
    await until(() => ticks > 15)
    clearInterval(ticking)
    expect(isDone).toBe(false)
    own.exec('COMMIT')
    await enqueued
  })
})

it('says so when the lock is never given back, by another connection or by a transaction that hangs', {
  timeout: 30_000,
}, async () => {
  const driver = sqliteDrivers()[0] as SqliteDriver
  const [one, other] = [await newWorld(driver), await newWorld(driver)]
  const own = one.connect()
  own.exec('BEGIN IMMEDIATE')
  let goOn = () => {}
  const hanging = other.outbox.transaction(
    () =>
      new Promise<void>((resolve) => {
        goOn = resolve
      }),
  )
  const attempts = [one, other].map(({ outbox }) => outbox.enqueue(Thing({ n: 1 })))
  await Promise.all(attempts.map((one) => expect(one).rejects.toEqual(hasCode('STORE_BUSY'))))
  own.exec('ROLLBACK')
  goOn()
  await hanging
  for (const { outbox } of [one, other]) await outbox.enqueue(Thing({ n: 2 }))
})
