import { describe, expect, it } from 'vitest'
import { DuplicateEventError } from '../../../src/index.js'
import { event, rowsIn } from '../../support/trap-kit.js'
import { OrderPlaced } from '../../support/world.js'
import { benchOn, type Tx, worksAgain } from './with-the-commit.kit.js'

/** What the server has against the row of an event that waits shows later: nothing of the transaction is left. */

const refused = { code: 'P4711', originalMessage: 'not this row' }

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
    const bench = await benchOn()
    await bench.outbox.start()
    await expect(bench.run(body)).rejects.toMatchObject(refused)
    await bench.outbox.drain()
    await bench.nothingHappened()
    bench.log.raw.length = 0
    await worksAgain(bench)
  })

  it.each(bodies)('leaves the client healthy: %s', async (_where, body) => {
    const { outbox, run, pool } = await benchOn({ max: 1 })
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
    const bench = await benchOn()
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
    const bench = await benchOn()
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
    const bench = await benchOn()
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
    const bench = await benchOn()
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
    const { outbox, pool } = await benchOn()
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
