import type pg from 'pg'
import { describe, expect, it, onTestFinished } from 'vitest'
import { gate } from '../../../src/testing/store-conformance/fixtures.js'
import { opened } from './with-the-commit.kit.js'

const turn = () => new Promise((resolve) => setImmediate(resolve))

/** An outbox on a pool that tells how often it was asked for a client, with so many transactions that do not end. */
async function shop(open = 4) {
  const { pool, outbox } = await opened({ doorbell: false })
  const end = gate()
  const begun = Array.from({ length: open }, () => gate())
  const others = begun.map((one) =>
    outbox.transaction(async () => {
      one.open()
      await end.opened
    }),
  )
  onTestFinished(async () => {
    end.open()
    await Promise.all(others)
  })
  await Promise.all(begun.map((one) => one.opened))
  const { connect } = pool
  let asked = 0
  pool.connect = ((...args: []) => {
    asked++
    return connect.apply(pool, args)
  }) as typeof connect
  const order = async (): Promise<pg.PoolClient> => {
    const { tx } = await outbox.transaction(async (tx) => {
      await tx.publish({ type: 'thing.happened', payload: {} })
      return { tx }
    })
    return tx.client
  }
  await turn()
  return { pool, outbox, order, asked: () => asked }
}

describe('transactions one after the other', () => {
  it('take the client of the one before without asking the pool', async () => {
    const { order, asked } = await shop()
    const client = await order()
    for (let n = 0; n < 5; n++) expect(await order()).toBe(client)
    expect(asked()).toBe(1)
  })

  it('leave it to the pool when none begins in the same turn of the event loop', async () => {
    const { pool, order, asked } = await shop()
    const client = await order()
    expect(pool.idleCount).toBe(0)
    await turn()
    expect(pool.idleCount).toBe(1)
    expect(client.listenerCount('error')).toBe(1) // the pool's own
    await order()
    expect(asked()).toBe(2)
  })

  it('leave it to whoever waits for a client, before they go on themselves', async () => {
    const { pool, order } = await shop()
    const others = await Promise.all(Array.from({ length: pool.options.max - 5 }, () => pool.connect()))
    const client = await order()
    const turns: string[] = []
    const waiting = pool.connect().then((got) => {
      turns.push('waiting')
      expect(got).toBe(client)
      got.release()
    })
    const next = order().then(() => turns.push('transaction'))
    await Promise.all([waiting, next])
    expect(turns).toEqual(['waiting', 'transaction'])
    for (const other of others) other.release()
  })

  it('take another one when it was lost meanwhile', async () => {
    const { pool, order } = await shop()
    const client = await order()
    client.emit('error', new Error('Connection terminated unexpectedly'))
    expect(await order()).not.toBe(client)
    await turn()
    expect([pool.idleCount, pool.totalCount]).toEqual([1, 5])
  })

  it('begin none on a pool that has been ended', async () => {
    const { pool, order } = await shop()
    await order()
    void pool.end()
    await expect(order()).rejects.toThrow('after calling end on the pool')
    expect(pool.totalCount).toBe(4)
  })

  it('leave it to the pool at once while there are few of them', async () => {
    const { pool, order, asked } = await shop(3)
    await order()
    expect(pool.idleCount).toBe(1)
    await order()
    expect(asked()).toBe(2)
  })

  it.each(['acquire', 'release'])(
    'go through the pool, each of them, where somebody listens to %s',
    async (event) => {
      const { pool, order, asked } = await shop()
      let heard = 0
      pool.on(event as 'acquire', () => heard++)
      for (let n = 0; n < 3; n++) await order()
      expect([asked(), heard]).toEqual([3, 3])
    },
  )

  it.each([{ maxUses: 100 }, { maxLifetimeSeconds: 60 }])(
    'go through the pool, each of them, with %o',
    async (limit) => {
      const { pool, order, asked } = await shop()
      Object.assign(pool.options, limit)
      for (let n = 0; n < 3; n++) await order()
      expect(asked()).toBe(3)
    },
  )
})
