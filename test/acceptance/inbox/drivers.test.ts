import { describe, expect, it } from 'vitest'
import { exactlyOnce, processedEvents } from '../../../src/inbox/index.js'
import { THREE_DRIVERS } from '../../support/three-drivers.js'
import { event } from '../../support/trap-kit.js'

describe.each(THREE_DRIVERS)('exactlyOnce with %s', (_driver, open) => {
  it('commits effect, follow-up and mark together, once', async () => {
    const { outbox, run, countRows } = await open()
    await outbox.transaction((tx) => run(tx.client, 'create table effect (n int)'))
    const hasOneEffect = () =>
      outbox.transaction(async (tx) => {
        // One row a statement is all that the drivers' answers have in common: this fails when it is not 1.
        await run(tx.client, 'select 1 / (case count(*) when 1 then 1 else 0 end) from effect')
      })
    const commits: number[] = []
    let runs = 0
    const handle = exactlyOnce(async (_event, { tx }) => {
      runs++
      await run(tx.client, 'insert into effect values (1)')
      await tx.publish(event('thing.followed'))
      const inner = tx.transaction(async (nested) => {
        await run(nested.client, 'insert into effect values (2)')
        await nested.publish(event('thing.followed'))
        throw new Error('of the savepoint')
      })
      await expect(inner).rejects.toThrow('of the savepoint')
      if (runs === 1) throw new Error('before the commit')
    }, outbox)
    outbox.on(
      'thing.happened',
      'once',
      async (one, context) => {
        await handle(one, context)
        if (commits.push(context.attempt) === 1) throw new Error('after the commit')
      },
      { retry: { policy: { delayMs: () => 0 } } },
    )
    outbox.on('thing.followed', 'note', () => {})
    const id = await outbox.enqueue(event())
    await outbox.drain()
    expect(runs).toBe(2)
    expect(commits).toEqual([2, 3])
    await hasOneEffect()
    expect(await countRows()).toBe(2)
    expect(await processedEvents(outbox).contains({ handler: 'once', eventId: id })).toBe(true)
    await outbox.transaction((tx) => run(tx.client, 'drop table effect'))
  })
})
