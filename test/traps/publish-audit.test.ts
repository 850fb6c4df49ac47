import { describe, expect, it } from 'vitest'
import { event, migratedDatabase, outboxOn, poolOn } from '../support/trap-kit.js'

/** The audit line says that something happened: it is written after the commit, or never. */

describe('the audit line of a publish', () => {
  it('is written after the commit and not before, one for each event', async () => {
    const { outbox, log } = outboxOn(poolOn(await migratedDatabase()))
    const published = () => log.matching(/event published/)
    let ids: string[] = []
    await outbox.transaction(async (tx) => {
      ids = await tx.publishAll([
        { type: 'one', payload: 1, metadata: { correlationId: 'c-1' } },
        { type: 'two', payload: 2 },
      ])
      expect(published()).toEqual([])
    })
    expect(published()).toMatchObject([
      { level: 'info', event_id: ids[0], event_type: 'one', correlation_id: 'c-1' },
      { level: 'info', event_id: ids[1], event_type: 'two' },
    ])
  })

  it('is not written when the transaction rolls back', async () => {
    const { outbox, log } = outboxOn(poolOn(await migratedDatabase()))
    const outcome = outbox.transaction(async (tx) => {
      await tx.publish(event())
      throw new Error('no')
    })
    await expect(outcome).rejects.toThrow('no')
    expect(log.lines()).toEqual([])
  })

  it('is not written for what a savepoint undid, by our own nesting or by SQL', async () => {
    const { outbox, log } = outboxOn(poolOn(await migratedDatabase()))
    await outbox.transaction(async (tx) => {
      await tx.publish(event('kept'))
      const nested = tx.transaction(async (inner) => {
        await inner.publish(event('undone'))
        throw new Error('no')
      })
      await nested.catch(() => {})
      await tx.client.query('savepoint mine')
      await tx.publish(event('undone'))
      await tx.client.query('rollback to mine')
    })
    expect(log.matching(/event published/).map((line) => line.event_type)).toEqual(['kept'])
  })

  it('is not written for a duplicate that was ignored, nor when the commit is refused', async () => {
    const pool = poolOn(await migratedDatabase())
    await pool.query('create table thing (id int unique deferrable initially deferred)')
    const { outbox, log } = outboxOn(pool)
    const again = { type: 'kept', payload: 1, eventId: 'same' }
    await outbox.enqueue(again)
    await outbox.transaction((tx) => tx.publish(again, { onDuplicate: 'ignore' }))
    const refused = outbox.transaction(async (tx) => {
      await tx.publish(event('refused'))
      await tx.client.query('insert into thing values (1), (1)')
    })
    await expect(refused).rejects.toThrow(/duplicate key/)
    expect(log.matching(/event published/).map((line) => line.event_id)).toEqual(['same'])
  })
})
