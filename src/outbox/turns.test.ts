import { describe, expect, it } from 'vitest'
import { stopped, turns, world } from '../../test/support/runtime-world.js'

/** A started outbox, and what happens in the order in which it does. */
async function shop() {
  const { outbox, clock } = world()
  const told: string[] = []
  outbox.on('a', 'note', (event) => void told.push(`handled ${event.payload}`))
  await outbox.start()
  const publish = async (n: number) => {
    await outbox.enqueue({ type: 'a', payload: n })
    told.push(`published ${n}`)
  }
  return { outbox, clock, told, publish }
}

describe('events of this process', () => {
  it('are handled behind whoever published them, those of one turn of the event loop together', async () => {
    const { outbox, clock, told, publish } = await shop()
    await Promise.all([publish(1), publish(2)])
    await new Promise((resolve) => setImmediate(resolve))
    expect(told).toEqual(['published 1', 'published 2', 'handled 1', 'handled 2'])
    await stopped(outbox, clock)
  })

  it('are handled when the outbox is stopped right behind the publish', async () => {
    const { outbox, clock, told, publish } = await shop()
    await publish(1)
    await stopped(outbox, clock)
    expect(told).toEqual(['published 1', 'handled 1'])
    expect(await outbox.stats()).toMatchObject({ pending: 0, done: 1 })
  })

  it('are handled also while somebody publishes without ever leaving his turn', async () => {
    const { outbox, clock, told, publish } = await shop()
    for (let n = 0; n < 1_000; n++) await publish(n)
    const handled = told.filter((one) => one.startsWith('handled')).length
    expect(handled).toBeGreaterThan(900)
    await stopped(outbox, clock)
    expect(await outbox.stats()).toMatchObject({ pending: 0, done: 1_000 })
  })

  it('leave everybody else a turn, also with a store that never waits and a backlog', async () => {
    const { outbox, clock } = world()
    for (let n = 0; n < 20; n++) {
      await outbox.transaction((tx) =>
        tx.publishAll(Array.from({ length: 500 }, () => ({ type: 'a', payload: n }))),
      )
    }
    let handled = 0
    let turn = -1
    outbox.on('a', 'count', () => {
      if (++handled === 1) setImmediate(() => (turn = handled))
    })
    await outbox.start()
    await turns()
    await stopped(outbox, clock)
    expect(turn).toBeGreaterThan(0)
    expect(turn).toBeLessThan(5_000)
    expect(handled).toBe(10_000)
  })
})
