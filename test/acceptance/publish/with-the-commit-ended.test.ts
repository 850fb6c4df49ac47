import { describe, expect, inject, it } from 'vitest'
import { CommitUnknownError, TransactionEndedError, TransactionRolledBackError } from '../../../src/index.js'
import { startProxy } from '../../support/proxy.js'
import { afterwards, event, migratedDatabase, outboxOn, poolOn, rowsIn } from '../../support/trap-kit.js'
import { until } from '../../support/waiting.js'
import { type Bench, benchOn, LOCK, poller, TRIGGERS, type Tx, worksAgain } from './with-the-commit.kit.js'

/** Transactions that end otherwise than by our COMMIT, with events that wait for it. */

describe('a COMMIT', () => {
  it('that a deferred constraint refuses rejects with its error, and announces nothing', async () => {
    const bench = await benchOn()
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
    const { run, outbox, pool, hooks, handled } = await benchOn()
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
      const bench = await benchOn()
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
      const { run, pool, handled } = await benchOn()
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
    const { run, pool, hooks } = await benchOn()
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
    const { run, pool, hooks } = await benchOn()
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
      const bench = await benchOn()
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
    const bench = await benchOn()
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
      const bench = await benchOn()
      const { outcome, release } = await stuck(bench, body)
      await bench.pool.query(`select pg_cancel_backend(pid) ${waiting}`)
      expect(await outcome).toMatchObject({ code: '57014' })
      await release()
      await bench.nothingHappened()
    },
  )

  it('and is left by query_timeout: nobody knows, the connection is closed', async () => {
    const bench = await benchOn({ query_timeout: 300, max: 1 })
    const { outcome, release } = await stuck(bench, slow)
    expect(await outcome).toBeInstanceOf(CommitUnknownError)
    await release()
    expect(bench.hooks).toEqual([])
    await bench.outbox.enqueue(event())
  })

  it('and is left by query_timeout before the COMMIT: nothing is committed', async () => {
    const bench = await benchOn({ query_timeout: 300, max: 1 })
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
    const bench = await benchOn()
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
      const bench = await benchOn()
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
