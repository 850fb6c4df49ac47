import { expect, it } from 'vitest'
import { noting, OrderPlaced, onEveryPostgres } from '../../support/world.js'

onEveryPostgres('nested transactions', (newWorld) => {
  it('forgets the events of a rolled-back inner transaction, in the table and in memory', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    const handled = noting(outbox)
    await outbox.start()
    await outbox.transaction(async (tx) => {
      await tx.publish(OrderPlaced({ orderId: 'before' }))
      const inner = outbox.transaction(async () => {
        await outbox.publish(OrderPlaced({ orderId: 'inner' }))
        throw new Error('inner')
      })
      await expect(inner).rejects.toThrow('inner')
      await outbox.publish(OrderPlaced({ orderId: 'after' }))
    })
    await outbox.drain()
    expect(handled.sort()).toEqual(['after', 'before'])
    expect(await world.rows()).toMatchObject([{ status: 'DONE' }, { status: 'DONE' }])
  })

  it('takes an inner transaction that succeeded down with the outer one', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    const handled = noting(outbox)
    await outbox.start()
    const outer = outbox.transaction(async () => {
      await outbox.transaction((tx) => tx.publish(OrderPlaced({ orderId: 'inner' })))
      throw new Error('outer')
    })
    await expect(outer).rejects.toThrow('outer')
    await outbox.drain()
    expect(handled).toEqual([])
    expect(await world.rows()).toEqual([])
  })

  it('keeps the outer transaction usable after a statement failed in the inner one', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    const handled = noting(outbox)
    await outbox.start()
    await outbox.transaction(async (tx) => {
      const inner = tx.transaction(async (nested) => {
        await nested.publish(OrderPlaced({ orderId: 'inner' }))
        await nested.client.query('select 1/0')
      })
      await expect(inner).rejects.toThrow('division by zero')
      await tx.publish(OrderPlaced({ orderId: 'outer' }))
    })
    await outbox.drain()
    expect(handled).toEqual(['outer'])
  })

  it('nests three deep and loses only the branch that failed', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    const handled = noting(outbox)
    await outbox.start()
    const step = (orderId: string, inside: () => Promise<unknown>, fail = false) =>
      outbox.transaction(async (tx) => {
        await tx.publish(OrderPlaced({ orderId }))
        await inside()
        if (fail) throw new Error(orderId)
      })
    await step('1', async () => {
      await step('1.1', () => step('1.1.1', async () => {}), true).catch(() => {})
      await step('1.2', () => step('1.2.1', async () => {}, true).catch(() => {}))
    })
    await outbox.drain()
    expect(handled.sort()).toEqual(['1', '1.2'])
    expect(await world.rows()).toHaveLength(2)
  })

  it('runs inner transactions that were started together one after the other', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    await outbox.transaction(async (tx) => {
      const outcomes = await Promise.allSettled(
        ['a', 'b', 'c', 'd'].map((orderId) =>
          tx.transaction(async (inner) => {
            await inner.publish(OrderPlaced({ orderId }, { eventId: orderId }))
            if (orderId === 'b') throw new Error('b')
          }),
        ),
      )
      expect(outcomes.map((one) => one.status)).toEqual(['fulfilled', 'rejected', 'fulfilled', 'fulfilled'])
    })
    expect((await world.rows()).map((row) => row.id)).toEqual(['a', 'c', 'd'])
  })

  it('does not hang when the outer handle is used to nest inside an inner transaction', {
    timeout: 5_000,
  }, async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    await outbox.transaction(async (outer) => {
      await outer.transaction(async () => {
        await outer.transaction((tx) => tx.publish(OrderPlaced({ orderId: 'o-1' })))
      })
    })
    expect(await world.rows()).toHaveLength(1)
  })

  it('notices a ROLLBACK TO that the application sent by hand', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    const handled = noting(outbox)
    await outbox.start()
    await outbox.transaction(async (tx) => {
      await tx.publish(OrderPlaced({ orderId: 'kept' }))
      await tx.client.query('SAVEPOINT by_hand')
      await tx.publish(OrderPlaced({ orderId: 'gone' }))
      await tx.client.query({ text: 'rollback to by_hand' })
    })
    await outbox.drain()
    expect(handled).toEqual(['kept'])
    expect(await world.rows()).toHaveLength(1)
  })

  it('notices it also when it is hidden in a statement with others, or says ABORT', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    const handled = noting(outbox)
    await outbox.start()
    await outbox.transaction(async (tx) => {
      await tx.client.query('SAVEPOINT one')
      await tx.publish(OrderPlaced({ orderId: 'gone' }))
      await tx.client.query('select 1; ROLLBACK/**/TO one; select 2')
    })
    await outbox
      .transaction(async (tx) => {
        await tx.publish(OrderPlaced({ orderId: 'aborted' }))
        await tx.client.query('ABORT')
      })
      .catch(() => {})
    await outbox.drain()
    expect(handled).toEqual([])
    expect(await world.rows()).toEqual([])
  })

  it('calls the rollback hooks of an inner transaction at once, and its commit hooks only with the outer commit', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    const called: string[] = []
    await outbox.transaction(async (tx) => {
      await tx.transaction(async (inner) => {
        inner.afterCommit(() => called.push('commit of the first'))
        inner.afterRollback(() => called.push('rollback of the first'))
      })
      await tx
        .transaction(async (inner) => {
          inner.afterCommit(() => called.push('commit of the second'))
          inner.afterRollback(() => called.push('rollback of the second'))
          throw new Error('second')
        })
        .catch(() => {})
      expect(called).toEqual(['rollback of the second'])
    })
    expect(called).toEqual(['rollback of the second', 'commit of the first'])
  })

  it('refuses to publish with the handle of an inner transaction that has ended', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    await outbox.transaction(async (tx) => {
      const inner = await tx.transaction(async (nested) => ({ nested }))
      await expect(inner.nested.publish(OrderPlaced({ orderId: 'late' }))).rejects.toMatchObject({
        code: 'TRANSACTION_ENDED',
      })
    })
    expect(await world.rows()).toEqual([])
  })
})
