import type pg from 'pg'
import postgres from 'postgres'
import { describe, expect, it } from 'vitest'
import { createOutbox, NoActiveTransactionError, TransactionEndedError } from '../../src/index.js'
import { postgresStore } from '../../src/stores/postgres/index.js'
import { recordLog } from '../support/log-recorder.js'
import { afterwards, event, migratedDatabase, outboxOn, poolOn, rowsIn } from '../support/trap-kit.js'
import { signal } from '../support/waiting.js'

/** Publishing after the end of the transaction, by a promise that nobody awaited, writes nothing. */

describe('a publish that comes after the transaction', () => {
  it.each(['commit', 'rollback'])('is refused with the ambient transaction, after %s', async (end) => {
    const pool = poolOn(await migratedDatabase())
    const { outbox } = outboxOn(pool)
    const go = signal()
    let late: Promise<unknown> = Promise.resolve()
    const outcome = outbox.transaction(async () => {
      late = go.promise.then(() => outbox.publish(event()))
      if (end === 'rollback') throw new Error('no')
    })
    await outcome.catch(() => {})
    go.give()
    await expect(late).rejects.toBeInstanceOf(TransactionEndedError)
    expect(await rowsIn(pool)).toEqual([])
  })

  it('is refused with the tx object, also in a nested one, and so are hooks', async () => {
    const pool = poolOn(await migratedDatabase())
    const { outbox } = outboxOn(pool)
    const late: (() => unknown)[] = []
    await outbox.transaction(async (tx) => {
      await tx.transaction(async (inner) => {
        late.push(
          () => inner.publish(event()),
          () => inner.publishAll([event()]),
          () => outbox.publish(event(), { tx: inner }),
          () => inner.transaction(async () => {}),
        )
      })
      late.push(
        () => tx.publish(event()),
        () => outbox.publish(event(), { tx }),
        () => tx.transaction(async (again) => again.publish(event())),
      )
      tx.afterCommit(() => late.push(async () => tx.afterCommit(() => {})))
    })
    expect(late).toHaveLength(8)
    for (const publish of late) await expect(publish()).rejects.toBeInstanceOf(TransactionEndedError)
    expect(await rowsIn(pool)).toEqual([])
  })

  it('is refused with a nested tx object although the outer transaction goes on', async () => {
    const pool = poolOn(await migratedDatabase())
    const { outbox } = outboxOn(pool)
    await outbox.transaction(async (tx) => {
      const inner = await tx.transaction(async (nested) => nested)
      await expect(inner.publish(event())).rejects.toBeInstanceOf(TransactionEndedError)
    })
    expect(await rowsIn(pool)).toEqual([])
  })

  it('is refused with a raw pg client, before BEGIN, after COMMIT and after ROLLBACK', async () => {
    const pool = poolOn(await migratedDatabase())
    const { outbox } = outboxOn(pool)
    const client = await pool.connect()
    try {
      const refused = () =>
        expect(outbox.publish(event(), { tx: client })).rejects.toBeInstanceOf(TransactionEndedError)
      await refused()
      await client.query('begin')
      await client.query('commit')
      await refused()
      await client.query('begin')
      await client.query('rollback')
      await refused()
    } finally {
      client.release()
    }
    expect(await rowsIn(pool)).toEqual([])
  })

  it('is refused behind a COMMIT that the client has queued but not sent', async () => {
    const pool = poolOn(await migratedDatabase())
    const { outbox } = outboxOn(pool)
    const client = await pool.connect()
    try {
      await client.query('begin')
      const committed = client.query('commit')
      const late = outbox.publish(event(), { tx: client }).catch((error: unknown) => error)
      await committed
      expect(await late).toBeInstanceOf(TransactionEndedError)
    } finally {
      client.release()
    }
    expect(await rowsIn(pool)).toEqual([])
  })

  it('is refused with the pool itself, which has no transaction', async () => {
    const pool = poolOn(await migratedDatabase())
    const { outbox } = outboxOn(pool)
    const tx = pool as unknown as pg.PoolClient
    await expect(outbox.publish(event(), { tx })).rejects.toBeInstanceOf(TransactionEndedError)
    expect(await rowsIn(pool)).toEqual([])
  })

  it('is refused with postgres.js outside begin', async () => {
    const url = await migratedDatabase()
    const sql = postgres(url, { max: 4 })
    afterwards('end postgres.js', () => sql.end({ timeout: 1 }))
    const outbox = createOutbox({ store: postgresStore(sql), logger: recordLog().logger })
    const tx = sql as unknown as postgres.TransactionSql
    await expect(outbox.publish(event(), { tx })).rejects.toBeInstanceOf(TransactionEndedError)
    const ended = await sql.begin(async (inside) => [inside])
    const [handle] = ended as unknown as [postgres.TransactionSql]
    await expect(outbox.publish(event(), { tx: handle })).rejects.toBeInstanceOf(TransactionEndedError)
    expect(await rowsIn(poolOn(url, { max: 1 }))).toEqual([])
  })

  it('is refused when the body itself ended the transaction by SQL', async () => {
    const pool = poolOn(await migratedDatabase())
    await pool.query('create table thing (id int)')
    const { outbox } = outboxOn(pool)
    const outcome = outbox.transaction(async (tx) => {
      await tx.client.query('insert into thing values (1)')
      await tx.client.query('rollback')
      await tx.publish(event())
    })
    await expect(outcome).rejects.toBeInstanceOf(TransactionEndedError)
    expect(await rowsIn(pool)).toEqual([])
  })

  it('without any transaction is refused by its own error', async () => {
    const pool = poolOn(await migratedDatabase())
    const { outbox } = outboxOn(pool)
    await expect(outbox.publish(event())).rejects.toBeInstanceOf(NoActiveTransactionError)
    await expect(outbox.publishAll([event(), event()])).rejects.toBeInstanceOf(NoActiveTransactionError)
    expect(await rowsIn(pool)).toEqual([])
  })
})

describe('a publish that was not awaited', () => {
  it('is still part of the transaction when it began before the end', async () => {
    const pool = poolOn(await migratedDatabase())
    const { outbox } = outboxOn(pool)
    await outbox.transaction(async (tx) => {
      void tx.publish(event())
    })
    expect(await rowsIn(pool)).toHaveLength(1)
  })
})
