import type pg from 'pg'
import { describe, expect, inject, it } from 'vitest'
import {
  CommitUnknownError,
  DuplicateEventError,
  type Transaction,
  TransactionEndedError,
  TransactionRolledBackError,
} from '../../../src/index.js'
import { startProxy } from '../../support/proxy.js'
import {
  afterwards,
  event,
  migratedDatabase,
  outboxOn,
  poolOn,
  rowsIn,
  type TestOutbox,
} from '../../support/trap-kit.js'
import { until } from '../../support/waiting.js'
import { OrderPlaced } from '../../support/world.js'

/** What the server, or the application, does to events that wait for the COMMIT. */

type Tx = Transaction<pg.PoolClient>

const poller = { pollIntervalMs: 3_600_000 }
const LOCK = 4_711

/** Rows of these types the server refuses, leaves out, or writes after it has waited for a lock. */
const TRIGGERS = `
  create table business (id int unique deferrable initially deferred);
  create function wait_at_commit() returns trigger language plpgsql as
    $$ begin perform pg_advisory_xact_lock(${LOCK}); return null; end $$;
  create constraint trigger wait after insert on business deferrable initially deferred for each row
    when (new.id = 2) execute function wait_at_commit();
  create function refuse() returns trigger language plpgsql as
    $$ begin raise exception 'not this row' using errcode = 'P4711'; end $$;
  create trigger refuse before insert on outbox_event for each row
    when (new.event_type = 'thing.refused') execute function refuse();
  create function leave_out() returns trigger language plpgsql as $$ begin return null; end $$;
  create trigger leave_out before insert on outbox_event for each row
    when (new.event_type = 'thing.left out') execute function leave_out();
  create function wait() returns trigger language plpgsql as
    $$ begin perform pg_advisory_xact_lock(${LOCK}); return new; end $$;
  create trigger wait before insert on outbox_event for each row
    when (new.event_type = 'thing.slow') execute function wait()`

interface Bench extends TestOutbox {
  readonly pool: pg.Pool
  readonly handled: unknown[]
  readonly hooks: string[]
  /** A transaction that does business and has hooks. */
  run(body: (tx: Tx) => Promise<unknown>): Promise<unknown>
  /** Nothing was committed, no handler called, and nothing but the rollback announced. */
  nothingHappened(): Promise<void>
}

async function opened(config: pg.PoolConfig = {}): Promise<Bench> {
  const url = await migratedDatabase()
  const observer = poolOn(url, { max: 2 })
  await observer.query(TRIGGERS)
  const pool = poolOn(url, config)
  const test = outboxOn(pool, { poller, dispatcher: { hotQueueSize: 1 } })
  const handled: unknown[] = []
  const hooks: string[] = []
  for (const type of ['thing.happened', 'thing.refused', 'thing.left out', 'order.placed']) {
    test.outbox.on(type, 'see', (one) => void handled.push(one.payload))
  }
  return {
    ...test,
    pool: observer,
    handled,
    hooks,
    run: (body) =>
      test.outbox.transaction(async (tx) => {
        tx.afterCommit(() => hooks.push('commit'))
        tx.afterRollback(() => hooks.push('rollback'))
        await tx.client.query('insert into business values (1)')
        await body(tx)
      }),
    nothingHappened: async () => {
      expect(hooks).toEqual(['rollback'])
      expect((await observer.query('select * from business')).rows).toEqual([])
      expect(await rowsIn(observer)).toEqual([])
      expect(handled).toEqual([])
      expect(test.log.matching(/event published/)).toEqual([])
    },
  }
}

/** The place in the hot queue is free again, and so is the client. */
async function worksAgain({ outbox, log, handled }: Bench): Promise<void> {
  await outbox.enqueue(event('thing.happened', 'again'))
  await until('the next goes hot', () => handled.includes('again'))
  expect(log.matching(/hot queue is full/)).toEqual([])
  await outbox.drain()
}

const refused = { code: 'P4711', message: 'not this row' }

describe('a row that the server refuses', () => {
  const bodies: readonly (readonly [string, (tx: Tx) => Promise<unknown>])[] = [
    ['with the COMMIT', (tx) => tx.publish(event('thing.refused'))],
    [
      'in front of a statement',
      async (tx) => {
        await tx.publish(event('thing.refused'))
        await tx.client.query('select 1')
      },
    ],
    [
      'in front of a statement whose failure is swallowed',
      async (tx) => {
        await tx.publish(event('thing.refused'))
        await tx.client.query('select 1').catch(() => {})
      },
    ],
    [
      'in front of a statement whose failure is wrapped, as some libraries do',
      async (tx) => {
        await tx.publish(event('thing.refused'))
        await tx.client.query('select 1').catch((cause) => {
          throw new Error('Failed query: select 1', { cause })
        })
      },
    ],
    [
      'in front of a publish that goes at once',
      async (tx) => {
        await tx.publish(event('thing.refused'))
        await tx.publish({ type: 'thing.happened', eventId: 'given' }).catch(() => {})
        await tx.publish(event()).catch(() => {})
      },
    ],
    [
      'in front of a savepoint',
      async (tx) => {
        await tx.publish(event('thing.refused'))
        await tx.transaction(async () => {})
      },
    ],
    [
      'in front of a savepoint, the error of which is swallowed',
      async (tx) => {
        await tx.publish(event('thing.refused'))
        await tx.transaction(async () => {}).catch(() => {})
      },
    ],
    [
      'in front of a look at what is left after a rollback to a savepoint',
      async (tx) => {
        await tx.client.query('savepoint mine')
        await tx.client.query('rollback to mine')
        await tx.publish(event('thing.refused'))
      },
    ],
    [
      'because there were so many',
      async (tx) => {
        for (let n = 0; n < 499; n++) await tx.publish(event())
        await expect(tx.publish(event('thing.refused'))).rejects.toMatchObject(refused)
        await tx.publish(event()).catch(() => {})
      },
    ],
  ]

  it.each(bodies)('fails the transaction with that very error: %s', async (_where, body) => {
    const bench = await opened()
    await bench.outbox.start()
    await expect(bench.run(body)).rejects.toMatchObject(refused)
    await bench.outbox.drain()
    await bench.nothingHappened()
    bench.log.raw.length = 0
    await worksAgain(bench)
  })

  it.each(bodies)('leaves the client healthy: %s', async (_where, body) => {
    const { outbox, run, pool } = await opened({ max: 1 })
    const pids: unknown[] = []
    for (let n = 0; n < 2; n++) {
      const outcome = run(async (tx) => {
        pids.push((await tx.client.query('select pg_backend_pid() as pid')).rows[0].pid)
        await body(tx)
      })
      await expect(outcome).rejects.toMatchObject(refused)
    }
    expect(pids[0]).toBe(pids[1])
    await outbox.enqueue(event())
    expect(await rowsIn(pool)).toHaveLength(1)
  })

  it("does not hide the application's own error", async () => {
    const bench = await opened()
    const failure = new Error('of the application')
    const outcome = bench.run(async (tx) => {
      await tx.publish(event('thing.refused'))
      await tx.client.query('select 1').catch(() => {})
      throw failure
    })
    await expect(outcome).rejects.toBe(failure)
    await bench.nothingHappened()
  })

  it("is not called a duplicate when it violates a unique index of the application's", async () => {
    const bench = await opened()
    await bench.pool.query('create unique index one_each on outbox_event (aggregate_id)')
    const outcome = bench.run(async (tx) => {
      await tx.publish({ type: 'thing.happened', aggregateId: 'a' })
      await tx.publish({ type: 'thing.happened', aggregateId: 'a' })
    })
    await expect(outcome).rejects.toMatchObject({ code: '23505', constraint: 'one_each' })
    await bench.nothingHappened()
  })
})

describe('a row that the server leaves out, by a trigger of the application,', () => {
  it('is not handled from memory either', async () => {
    const bench = await opened()
    await bench.outbox.start()
    await bench.run((tx) => tx.publish(event('thing.left out')))
    await bench.outbox.drain()
    expect(bench.hooks).toEqual(['commit'])
    expect(bench.handled).toEqual([])
    await worksAgain(bench)
  })
})

describe('an id of ours that exists nevertheless', () => {
  it.each([
    ['with the COMMIT', async () => {}],
    ['in front of a statement', async (tx: Tx) => void (await tx.client.query('select 1'))],
    ['among others', async (tx: Tx) => void (await tx.publishAll([event(), event()]))],
  ])('fails the transaction, and names the event: %s', async (_where, then) => {
    const bench = await opened()
    const { outbox, handled } = bench
    const twin = OrderPlaced({ orderId: 'o-1' })
    await outbox.enqueue(twin.toEnvelope())
    await bench.pool.query('update outbox_event set status = 1')
    await outbox.start()
    bench.log.raw.length = 0
    const outcome = bench.run(async (tx) => {
      await tx.publish(twin)
      await then(tx)
    })
    await expect(outcome).rejects.toBeInstanceOf(DuplicateEventError)
    await expect(outcome).rejects.toMatchObject({ eventIds: [twin.eventId] })
    await outbox.drain()
    await bench.pool.query('delete from outbox_event')
    await bench.nothingHappened()
    bench.log.raw.length = 0
    await worksAgain(bench)
    expect(handled).toEqual(['again'])
  })

  it('is published by one of two transactions at the same time, and the other is rolled back', async () => {
    const { outbox, pool } = await opened()
    const twin = OrderPlaced({ orderId: 'o-1' })
    const outcomes = await Promise.allSettled(
      [1, 2, 3].map((id) =>
        outbox.transaction(async (tx) => {
          await tx.client.query('insert into business values ($1)', [id])
          await tx.publish(twin)
        }),
      ),
    )
    const won = outcomes.flatMap(({ status }, at) => (status === 'fulfilled' ? [{ id: at + 1 }] : []))
    expect(won).toHaveLength(1)
    for (const one of outcomes) {
      if (one.status === 'rejected') expect(one.reason).toBeInstanceOf(DuplicateEventError)
    }
    expect((await pool.query('select * from business')).rows).toEqual(won)
    expect(await rowsIn(pool)).toHaveLength(1)
  })
})

describe('a COMMIT', () => {
  it('that a deferred constraint refuses rejects with its error, and announces nothing', async () => {
    const bench = await opened()
    await bench.outbox.start()
    const outcome = bench.run(async (tx) => {
      await tx.client.query('insert into business values (1)')
      await tx.publish(event())
    })
    await expect(outcome).rejects.toMatchObject({ code: '23505', table: 'business' })
    await bench.outbox.drain()
    await bench.nothingHappened()
    bench.log.raw.length = 0
    await worksAgain(bench)
  })

  it('of the application takes along what was published before it', async () => {
    const { run, outbox, pool, hooks, handled } = await opened()
    await outbox.start()
    await run(async (tx) => {
      await tx.publish(event('thing.happened', 'in time'))
      await tx.client.query('COMMIT')
    })
    await outbox.drain()
    expect(hooks).toEqual(['commit'])
    expect(handled).toEqual(['in time'])
    expect(await rowsIn(pool)).toMatchObject([{ status: 1, attempts: 0 }])
  })

  it.each([
    ['COMMIT', true],
    ['end; select 1', true],
    ['COMMIT', false],
  ])(
    'of the application that the server answers by ROLLBACK rolls back: %s, awaited: %s',
    async (end, awaited) => {
      const bench = await opened()
      await bench.outbox.start()
      const outcome = bench.run(async (tx) => {
        await tx.publish(event())
        const failing = tx.client.query('select 1/0').catch(() => {})
        if (awaited) await failing
        const ended = tx.client.query(end).catch(() => {})
        if (awaited) await ended
      })
      await expect(outcome).rejects.toBeInstanceOf(TransactionRolledBackError)
      await bench.outbox.drain()
      await bench.nothingHappened()
    },
  )

  it.each(['COMMIT', 'ROLLBACK'])(
    'is refused nothing it could write by itself: publish after an awaited %s',
    async (end) => {
      const { run, pool, handled } = await opened()
      const outcome = run(async (tx) => {
        await tx.client.query(end)
        await tx.publish(event())
      })
      await expect(outcome).rejects.toBeInstanceOf(TransactionEndedError)
      expect((await pool.query('select * from business')).rowCount).toBe(end === 'COMMIT' ? 1 : 0)
      expect(await rowsIn(pool)).toEqual([])
      expect(handled).toEqual([])
    },
  )

  it('of the application that nobody awaited is not followed by a row with an id of its own either', async () => {
    const { run, pool, hooks } = await opened()
    const outcome = run(async (tx) => {
      void tx.client.query('COMMIT')
      await tx.publish({ type: 'thing.happened', eventId: 'given' })
    })
    await expect(outcome).rejects.toBeInstanceOf(TransactionEndedError)
    expect(hooks).toEqual(['rollback'])
    expect(await rowsIn(pool)).toEqual([])
  })

  it.each([
    ['and nothing else', async () => {}],
    ['and a statement', async (tx: Tx) => void (await tx.client.query('select 1'))],
    ['and a statement that nobody awaits', async (tx: Tx) => void tx.client.query('select 1')],
    ['and a savepoint', (tx: Tx) => tx.transaction(async () => {}).catch(() => {})],
  ])('of the application that nobody awaited is not followed by a row: a publish %s', async (_what, then) => {
    const { run, pool, hooks } = await opened()
    const outcome = run(async (tx) => {
      void tx.client.query('COMMIT')
      await tx.publish(event())
      await then(tx)
    })
    await expect(outcome).rejects.toBeInstanceOf(TransactionEndedError)
    expect(hooks).toEqual(['rollback'])
    expect(await rowsIn(pool)).toEqual([])
  })

  it('of a transaction that has failed is not sent: the error was swallowed, then published', async () => {
    for (const awaited of [true, false]) {
      const bench = await opened()
      await bench.outbox.start()
      const outcome = bench.run(async (tx) => {
        const failing = tx.client.query('select 1/0').catch(() => {})
        if (awaited) await failing
        await tx.publish(event()).catch(() => {})
      })
      await expect(outcome).rejects.toBeInstanceOf(TransactionRolledBackError)
      await bench.outbox.drain()
      await bench.nothingHappened()
    }
  })

  it('does not hide the error of a statement that failed behind a publish', async () => {
    const bench = await opened()
    const outcome = bench.run(async (tx) => {
      const failing = tx.client.query('select 1/0')
      failing.catch(() => {})
      await tx.publish(event())
      const next = tx.client.query('select 2')
      next.catch(() => {})
      await failing
    })
    await expect(outcome).rejects.toMatchObject({ code: '22012' })
    await bench.nothingHappened()
  })
})

describe('a server that does not answer', () => {
  const waiting = `from pg_stat_activity where wait_event = 'advisory' and datname = current_database()`

  /** Runs the body with somebody else holding the lock, and waits until a row waits for it. */
  async function stuck(bench: Bench, body: (tx: Tx) => Promise<unknown>) {
    const holder = await bench.pool.connect()
    await holder.query(`select pg_advisory_lock(${LOCK})`)
    const outcome = bench.run(body).then(
      () => 'committed',
      (error: unknown) => error,
    )
    await until('it waits', async () => (await bench.pool.query(`select 1 ${waiting}`)).rowCount === 1)
    const release = async () => {
      await holder.query(`select pg_advisory_unlock(${LOCK})`)
      holder.release()
    }
    return { outcome, release }
  }

  const slow = (tx: Tx) => tx.publish(event('thing.slow'))
  const slowCommit = async (tx: Tx) => {
    await tx.client.query('insert into business values (2)')
    await tx.publish(event())
  }
  const slowThenMore = async (tx: Tx) => {
    await tx.publish(event('thing.slow'))
    await tx.client.query('select 1')
  }
  const places = [
    ['with the COMMIT', slow],
    ['in front of a statement', slowThenMore],
  ] as const

  it.each([...places, ['at the COMMIT itself', slowCommit] as const])(
    'and cancels the statement has rolled back for certain: %s',
    async (_where, body) => {
      const bench = await opened()
      const { outcome, release } = await stuck(bench, body)
      await bench.pool.query(`select pg_cancel_backend(pid) ${waiting}`)
      expect(await outcome).toMatchObject({ code: '57014' })
      await release()
      await bench.nothingHappened()
    },
  )

  it('and is left by query_timeout: nobody knows, the connection is closed', async () => {
    const bench = await opened({ query_timeout: 300, max: 1 })
    const { outcome, release } = await stuck(bench, slow)
    expect(await outcome).toBeInstanceOf(CommitUnknownError)
    await release()
    expect(bench.hooks).toEqual([])
    await bench.outbox.enqueue(event())
  })

  it('and is left by query_timeout before the COMMIT: nothing is committed', async () => {
    const bench = await opened({ query_timeout: 300, max: 1 })
    const { outcome, release } = await stuck(bench, slowThenMore)
    expect(await outcome).toMatchObject({ message: 'Query read timeout' })
    await release()
    const others = `select 1 from pg_stat_activity where datname = current_database() and state <> 'idle'
      and pid <> pg_backend_pid()`
    await until('it is over', async () => (await bench.pool.query(others)).rowCount === 0)
    await bench.nothingHappened()
    await bench.outbox.enqueue(event())
  })

  it.each(places)('because its backend ended: %s', async (where, body) => {
    const bench = await opened()
    const { outcome, release } = await stuck(bench, body)
    await bench.pool.query(`select pg_terminate_backend(pid) ${waiting}`)
    if (where === 'with the COMMIT') {
      expect(await outcome).toBeInstanceOf(CommitUnknownError)
      expect(bench.hooks).toEqual([])
    } else {
      expect(await outcome).toMatchObject({ message: expect.stringContaining('terminat') })
      await bench.nothingHappened()
    }
    await release()
    await bench.outbox.enqueue(event())
    expect(await rowsIn(bench.pool)).toHaveLength(1)
  })

  it.each(['before', 'after'])(
    'because its backend had ended %s the publish, is not asked to commit: rolled back for certain',
    async (when) => {
      const bench = await opened()
      const outcome = bench.run(async (tx) => {
        const { pid } = (await tx.client.query('select pg_backend_pid() as pid')).rows[0]
        if (when === 'after') await tx.publish(event())
        const ended = new Promise<void>((resolve) => tx.client.once('end', () => resolve()))
        await bench.pool.query('select pg_terminate_backend($1)', [pid])
        await ended
        if (when === 'before') await tx.publish(event())
      })
      await expect(outcome).rejects.toThrow()
      await expect(outcome).rejects.not.toBeInstanceOf(CommitUnknownError)
      await bench.nothingHappened()
    },
  )

  it('at one byte at a time is understood all the same', async () => {
    const direct = await migratedDatabase(inject('postgresUrl'))
    const observer = poolOn(direct, { max: 1 })
    await observer.query(TRIGGERS)
    const proxy = await startProxy(direct)
    afterwards('close the proxy', () => proxy.close())
    const { outbox } = outboxOn(poolOn(proxy.url), { poller })
    proxy.dribble(true)
    await outbox.transaction(async (tx) => {
      await tx.publish(event('thing.happened', 1))
      await tx.client.query('select 1')
      await tx.publish(event('thing.happened', 2))
    })
    const failing = [
      [{ code: 'P4711' }, async (tx: Tx) => tx.publish(event('thing.refused'))],
      [{ code: '22012' }, async (tx: Tx) => tx.client.query('select 1/0').then(() => tx.publish(event()))],
      [
        { code: 'TRANSACTION_ROLLED_BACK' },
        async (tx: Tx) => {
          await tx.client.query('select 1/0').catch(() => {})
          await tx.publish(event()).catch(() => {})
        },
      ],
    ] as const
    for (const [error, body] of failing)
      await expect(outbox.transaction<unknown>(body)).rejects.toMatchObject(error)
    expect(await rowsIn(observer)).toHaveLength(2)
  })
})
