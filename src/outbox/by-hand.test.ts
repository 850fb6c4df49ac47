import { describe, expect, it } from 'vitest'
import { refusesToWaitForHandlers } from '../../test/support/outbox-calls.js'
import { stopped, turns, world } from '../../test/support/runtime-world.js'
import { fixedDelay } from '../core/backoff.js'
import { gate } from '../testing/store-conformance/fixtures.js'
import { createTestOutbox } from '../testing/test-outbox.js'

describe('by hand', () => {
  it('handles nothing before it is asked to, and nothing more afterwards', async () => {
    const { outbox, clock } = world()
    let handled = 0
    outbox.on('a', 'note', () => void handled++)
    await outbox.enqueue({ type: 'a' })
    await clock.advance(60_000)
    expect(handled).toBe(0)
    await outbox.drain()
    expect(handled).toBe(1)
    await outbox.enqueue({ type: 'a' })
    await clock.advance(60_000)
    expect(handled).toBe(1)
    expect(clock.timerCount).toBe(0)
  })

  it('leaves no timer, also after a failure', async () => {
    const { outbox, clock } = world({}, (method) => {
      if (method === 'claim') throw new Error('down')
    })
    outbox.on('a', 'note', () => {})
    await expect(outbox.drain()).rejects.toThrow('down')
    await expect(outbox.consumeOne()).rejects.toThrow('down')
    expect(clock.timerCount).toBe(0)
  })

  it('is refused in an open transaction, and works in a handler that a transaction of another outbox surrounds', async () => {
    const { outbox } = world()
    await refusesToWaitForHandlers(outbox as never)
    const { outbox: inner } = world()
    let handled = 0
    inner.on('inner', 'count', () => void handled++)
    await inner.enqueue({ type: 'inner' })
    outbox.on('thing.happened', 'drain-other', () => outbox.transaction(() => inner.drain()))
    await outbox.drain()
    expect(handled).toBe(1)
  })

  it('works in the callbacks of a transaction that has ended', async () => {
    const { outbox } = world()
    let handled = 0
    outbox.on('a', 'count', () => void handled++)
    const drained = gate()
    await outbox.transaction(async (tx) => {
      tx.afterCommit(() => outbox.drain().then(drained.open))
      await tx.publish({ type: 'a' })
    })
    await drained.opened
    expect(handled).toBe(1)
  })

  it('renews leases of long handlers', async () => {
    const { outbox, clock, store } = world({ poller: { leaseMs: 3_000 } })
    const run = gate()
    outbox.on('a', 'note', () => run.opened)
    await outbox.enqueue({ type: 'a' })
    const draining = outbox.drain()
    await clock.advance(20_000)
    const other = createTestOutbox({ clock, store })
    let stolen = 0
    other.on('a', 'note', () => void stolen++)
    expect(await other.poll()).toBe(0)
    run.open()
    await clock.advance(10)
    await draining
    expect(stolen).toBe(0)
    expect((await store.list({ limit: 10 }))[0]).toMatchObject({ status: 'DONE', attempts: 0 })
  })

  it('renews leases of long handlers also when it has failed behind the claim', async () => {
    let isDown = false
    const options = { poller: { leaseMs: 3_000 }, dispatcher: { unroutableGraceMs: 0 } }
    const { outbox, clock, store } = world(options, (method) => {
      if (isDown && method === 'instances') throw new Error('unreachable')
    })
    const run = gate()
    outbox.on('slow', 'hang', () => run.opened)
    await outbox.enqueue({ type: 'slow' })
    isDown = true
    const polled = expect(outbox.poll()).rejects.toThrow('unreachable')
    await clock.advance(10_000)
    const [row] = await store.list({})
    expect(row?.lockedUntil?.getTime()).toBeGreaterThan(clock.now())
    run.open()
    await clock.advance(10)
    await polled
    expect(await store.list({})).toMatchObject([{ status: 'DONE' }])
    expect(clock.timerCount).toBe(0)
  })

  it.each(['start', 'drain'] as const)(
    'that has failed leaves the leases to a %s that came meanwhile',
    async (later) => {
      let isDown = false
      const poller = { leaseMs: 3_000, batchSize: 1 }
      const { outbox, clock, store } = world({ poller, dispatcher: { unroutableGraceMs: 0 } }, (method) => {
        if (isDown && method === 'instances') throw new Error('unreachable')
      })
      const [first, second] = [gate(), gate()]
      outbox.on('slow', 'hang', ({ payload }) => (payload === 1 ? first.opened : second.opened))
      for (const payload of [1, 2]) await outbox.enqueue({ type: 'slow', payload })
      isDown = true
      const polled = expect(outbox.poll()).rejects.toThrow('unreachable')
      await clock.advance(100)
      isDown = false
      const drained = later === 'start' ? outbox.start() : outbox.drain()
      await clock.advance(100)
      first.open()
      await clock.advance(100)
      await polled
      await clock.advance(10_000)
      const [row] = await store.list({ status: 'NEW' })
      expect(row?.lockedUntil?.getTime()).toBeGreaterThan(clock.now())
      second.open()
      await clock.advance(100)
      await drained
      await stopped(outbox, clock)
    },
  )

  it('two at once share the work and both end', async () => {
    const { outbox } = world({ poller: { batchSize: 3 } })
    let handled = 0
    outbox.on('a', 'note', () => void handled++)
    await outbox.transaction((tx) => tx.publishAll(Array.from({ length: 20 }, () => ({ type: 'a' }))))
    await Promise.all([outbox.drain(), outbox.drain(), outbox.poll()])
    expect(handled).toBe(20)
  })

  it('goes on with retries that are due at once', async () => {
    const { outbox } = world({ retry: { policy: fixedDelay(0), maxAttempts: 5 } })
    let tried = 0
    outbox.on('a', 'note', () => {
      tried++
      throw new Error('broken')
    })
    await outbox.enqueue({ type: 'a' })
    await outbox.drain()
    expect(tried).toBe(5)
    expect((await outbox.stats()).dead).toBe(1)
  })

  // The stop pauses the dispatcher under the helper: it claims and gives back without end.
  it('goes on, or ends, when the outbox is started and stopped meanwhile', async () => {
    const { outbox, clock, calls } = world()
    const first = gate()
    let handled = 0
    outbox.on('a', 'note', async () => {
      if (handled++ === 0) await first.opened
    })
    await outbox.transaction((tx) => tx.publishAll([{ type: 'a' }, { type: 'a' }]))
    const draining = outbox.drain().then(
      () => 'drained',
      (error: Error) => error.message,
    )
    await turns()
    await outbox.start()
    const stopping = outbox.stop()
    await clock.advance(5_000)
    await stopping
    first.open()
    await clock.advance(2_000)
    const outcome = await Promise.race([draining, turns().then(() => 'still at it')])
    expect({ outcome, endless: calls.length > 10_000 }).toEqual({ outcome: 'drained', endless: false })
  })
})
