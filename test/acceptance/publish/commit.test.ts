import { expect, it } from 'vitest'
import { NoActiveTransactionError, TransactionEndedError } from '../../../src/index.js'
import { counted, recordingLogger } from '../../support/recording.js'
import { gate, until } from '../../support/until.js'
import { HOUR_MS, OrderPlaced, onEveryPostgres, type PgOutbox } from '../../support/world.js'

/** Started, with nothing but the hot path to bring an event to its handler. */
async function startedHotOnly(outbox: PgOutbox, claims: () => number): Promise<string[]> {
  const handled: string[] = []
  outbox.on(OrderPlaced, 'note', (event) => void handled.push(event.payload.orderId))
  await outbox.start()
  await until(() => claims() > 0, { what: 'the first scan after the start' })
  return handled
}

onEveryPostgres('publishing in a transaction', (newWorld) => {
  it('leaves no row and calls no handler after a rollback, and rethrows the very error', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    const handled: unknown[] = []
    outbox.on(OrderPlaced, 'note', (event) => void handled.push(event))
    await outbox.start()
    const failure = { not: 'even an Error' }

    const transaction = outbox.transaction(async (tx) => {
      await tx.publish(OrderPlaced({ orderId: 'o-1' }))
      throw failure
    })

    await expect(transaction).rejects.toBe(failure)
    await outbox.drain()
    expect(await world.rows()).toEqual([])
    expect(handled).toEqual([])
  })

  it('gives the place in the hot queue back after a rollback', async () => {
    const world = await newWorld()
    let claims = () => 0
    const outbox = world.outbox({
      dispatcher: { hotQueueSize: 1 },
      wrap: (store) => {
        const watched = counted(store)
        claims = () => watched.calls('claim')
        return watched.store
      },
    })
    const handled = await startedHotOnly(outbox, () => claims())
    const before = claims()

    await outbox
      .transaction(async (tx) => {
        await tx.publish(OrderPlaced({ orderId: 'rolled back' }))
        throw new Error('no')
      })
      .catch(() => {})
    await outbox.transaction((tx) => tx.publish(OrderPlaced({ orderId: 'committed' })))

    await until(() => handled.length > 0)
    expect(handled).toEqual(['committed'])
    expect(claims()).toBe(before)
  })

  it('hands a committed event to its handler from memory, without a poll, and then marks it DONE', async () => {
    const world = await newWorld()
    let claims = () => 0
    const outbox = world.outbox({
      wrap: (store) => {
        const watched = counted(store)
        claims = () => watched.calls('claim')
        return watched.store
      },
    })
    const handled = await startedHotOnly(outbox, () => claims())
    const before = claims()
    const insideTransaction: string[][] = []

    const id = await outbox.transaction(async (tx) => {
      const published = await tx.publish(OrderPlaced({ orderId: 'o-1' }))
      insideTransaction.push([...handled])
      return published
    })

    await until(async () => (await world.rows())[0]?.status === 'DONE')
    expect(insideTransaction).toEqual([[]])
    expect(handled).toEqual(['o-1'])
    expect(await world.rows()).toMatchObject([{ id, attempts: 0, lockedBy: null, lastError: null }])
    expect(claims()).toBe(before)
  })

  it('does not let the handler start before the commit', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    const seen: number[] = []
    outbox.on(OrderPlaced, 'look', async () => {
      const { rows } = await world.pool.query<{ n: number }>(`select count(*)::int as n from ${world.table}`)
      seen.push(rows[0]?.n ?? -1)
    })
    await outbox.start()
    await outbox.transaction(async (tx) => {
      await tx.publish(OrderPlaced({ orderId: 'o-1' }))
      await tx.client.query('select pg_sleep(0.1)')
      expect(seen).toEqual([])
    })
    await until(() => seen.length > 0)
    expect(seen).toEqual([1])
  })

  it('deletes the row on completion when done rows are not kept', async () => {
    const world = await newWorld()
    const outbox = world.outbox({ retention: { doneMs: 0 } })
    const handled: string[] = []
    outbox.on(OrderPlaced, 'note', (event) => void handled.push(event.payload.orderId))
    await outbox.start()
    await outbox.transaction((tx) => tx.publish(OrderPlaced({ orderId: 'o-1' })))
    await outbox.drain()
    expect(handled).toEqual(['o-1'])
    expect(await world.rows()).toEqual([])
  })

  it("commits the application's own statements together with the event, or neither", async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    await world.pool.query(`create table ${world.table}_order (id text primary key)`)
    const place = (orderId: string, fail: boolean) =>
      outbox.transaction(async (tx) => {
        await tx.client.query(`insert into ${world.table}_order values ($1)`, [orderId])
        await outbox.publish(OrderPlaced({ orderId }))
        if (fail) throw new Error('no')
      })
    await place('kept', false)
    await expect(place('lost', true)).rejects.toThrow('no')
    const { rows } = await world.pool.query(`select id from ${world.table}_order`)
    expect(rows).toEqual([{ id: 'kept' }])
    expect(await world.rows()).toHaveLength(1)
  })

  it('leaves the row free for others, not leased, when this process has no handler for it', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    outbox.on('something.else', 'other', () => {})
    await outbox.start()
    await outbox.transaction((tx) => tx.publish(OrderPlaced({ orderId: 'o-1' })))
    expect(await world.rows()).toMatchObject([{ status: 'NEW', lockedBy: null }])
  })

  it('leaves the row to the poller when the transaction took longer than half the lease', async () => {
    const world = await newWorld()
    let claims = () => 0
    const outbox = world.outbox({
      poller: { leaseMs: 400, pollIntervalMs: HOUR_MS },
      wrap: (store) => {
        const watched = counted(store)
        claims = () => watched.calls('claim')
        return watched.store
      },
    })
    const handled = await startedHotOnly(outbox, () => claims())
    const before = claims()
    await outbox.transaction(async (tx) => {
      await tx.publish(OrderPlaced({ orderId: 'slow' }))
      await tx.client.query('select pg_sleep(0.3)')
    })
    await until(async () => (await world.rows())[0]?.status === 'DONE')
    expect(handled).toEqual(['slow'])
    expect(claims()).toBeGreaterThan(before)
  })

  it('refuses to publish where there is no transaction, and writes nothing', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    await expect(outbox.publish(OrderPlaced({ orderId: 'o-1' }))).rejects.toThrow(NoActiveTransactionError)
    await expect(outbox.publishAll([OrderPlaced({ orderId: 'o-2' })])).rejects.toThrow(
      NoActiveTransactionError,
    )
    expect(await world.rows()).toEqual([])
  })

  it('refuses a publish that comes after the end of its transaction, and writes nothing', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    const ended = gate()
    let byTx: Promise<unknown> | undefined
    let byOutbox: Promise<unknown> | undefined
    await outbox.transaction(async (tx) => {
      byTx = ended.opened.then(() => tx.publish(OrderPlaced({ orderId: 'late' })))
      byOutbox = ended.opened.then(() => outbox.publish(OrderPlaced({ orderId: 'late' })))
    })
    ended.open()
    await expect(byTx).rejects.toThrow(TransactionEndedError)
    await expect(byOutbox).rejects.toThrow(TransactionEndedError)
    expect(await world.rows()).toEqual([])
  })

  it('waits, before the commit, for a publish that nobody awaited', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    await outbox.transaction(async (tx) => {
      void tx.publish(OrderPlaced({ orderId: 'floating' })).catch(() => {})
    })
    expect(await world.rows()).toHaveLength(1)
  })

  it('refuses a publish after the application itself ended the transaction, instead of writing at once', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    const transaction = outbox.transaction(async (tx) => {
      await tx.client.query('ROLLBACK')
      await tx.publish(OrderPlaced({ orderId: 'in autocommit' }))
    })
    await expect(transaction).rejects.toThrow()
    expect(await world.rows()).toEqual([])
  })
})

onEveryPostgres('hooks of a transaction', (newWorld) => {
  it('calls afterCommit only after the commit is visible to others, and no afterRollback', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    const visible: Promise<number>[] = []
    const rolledBack: string[] = []
    await outbox.transaction(async (tx) => {
      tx.afterCommit(() => visible.push(world.rows().then((rows) => rows.length)))
      tx.afterRollback(() => rolledBack.push('called'))
      await tx.publish(OrderPlaced({ orderId: 'o-1' }))
      expect(visible).toEqual([])
    })
    expect(await Promise.all(visible)).toEqual([1])
    expect(rolledBack).toEqual([])
  })

  it('calls afterRollback after a rollback, and no afterCommit', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    const called: string[] = []
    const transaction = outbox.transaction(async (tx) => {
      tx.afterCommit(() => called.push('commit'))
      tx.afterRollback(() => called.push('rollback'))
      throw new Error('no')
    })
    await expect(transaction).rejects.toThrow('no')
    expect(called).toEqual(['rollback'])
  })

  it('survives hooks that throw and hooks that reject, logs them, and calls the others', async () => {
    const world = await newWorld()
    const logger = recordingLogger()
    const outbox = world.outbox({ logger })
    const called: string[] = []
    const result = await outbox.transaction(async (tx) => {
      tx.afterCommit(() => {
        throw new Error('thrown')
      })
      tx.afterCommit(() => Promise.reject(new Error('rejected')))
      tx.afterCommit(() => called.push('third'))
      await tx.publish(OrderPlaced({ orderId: 'o-1' }))
      return 'result'
    })
    expect(result).toBe('result')
    expect(called).toEqual(['third'])
    const errors = () =>
      logger.lines.filter((line) => line.level === 'error').map((line) => line.fields.error_message)
    await until(() => errors().length === 2)
    expect(errors().sort()).toEqual(['rejected', 'thrown'])
    expect(await world.rows()).toHaveLength(1)
  })

  it('rethrows the error of the transaction, not that of an afterRollback hook', async () => {
    const world = await newWorld()
    const transaction = world.outbox().transaction(async (tx) => {
      tx.afterRollback(() => {
        throw new Error('of the hook')
      })
      throw new Error('of the body')
    })
    await expect(transaction).rejects.toThrow('of the body')
  })

  it('writes the audit line of a publish after the commit, and none after a rollback', async () => {
    const world = await newWorld()
    const logger = recordingLogger()
    const outbox = world.outbox({ logger })
    const published = () => logger.lines.filter((line) => line.message === 'event published').length
    await outbox.transaction(async (tx) => {
      await tx.publish(OrderPlaced({ orderId: 'o-1' }))
      expect(published()).toBe(0)
    })
    expect(published()).toBe(1)
    await expect(
      outbox.transaction(async (tx) => {
        await tx.publish(OrderPlaced({ orderId: 'o-2' }))
        throw new Error('no')
      }),
    ).rejects.toThrow('no')
    expect(published()).toBe(1)
  })
})
