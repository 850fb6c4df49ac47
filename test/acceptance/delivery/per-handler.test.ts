import { expect, it } from 'vitest'
import { fixedDelay, RetryAfter, Unrecoverable } from '../../../src/index.js'
import { gate, until } from '../../support/until.js'
import { onEveryPostgres } from '../../support/world.js'

const TYPE = 'thing'
const event = { type: TYPE, payload: null }
const soon = { pollIntervalMs: 50 }

onEveryPostgres('several handlers of one event', (newWorld) => {
  it('run again only where they failed: one fails three times, the other runs once', async () => {
    const world = await newWorld()
    const outbox = world.outbox({ poller: soon })
    const calls = { flaky: 0, steady: 0 }
    outbox.on(TYPE, 'flaky', () => {
      if (++calls.flaky <= 3) throw new Error('not yet')
    })
    outbox.on(TYPE, 'steady', () => void calls.steady++)
    await outbox.start()
    await outbox.enqueue(event)
    await until(async () => (await world.rows())[0]?.status === 'DONE')
    expect(calls).toEqual({ flaky: 4, steady: 1 })
    expect(await world.rows()).toMatchObject([{ attempts: 3, handledBy: ['steady'] }])
  })

  it('have limits of their own: one is given up, the other goes on, and the event is dead in the end', async () => {
    const world = await newWorld()
    const outbox = world.outbox({ poller: soon })
    const calls = { short: 0, long: 0 }
    const short = { retry: { maxAttempts: 2, policy: fixedDelay(0) } }
    outbox.on(TYPE, 'short', () => Promise.reject(new Error(`short ${++calls.short}`)), short)
    outbox.on(TYPE, 'long', () => {
      if (++calls.long < 4) throw new Error(`long ${calls.long}`)
    })
    await outbox.start()
    await outbox.enqueue(event)
    await until(async () => (await world.rows())[0]?.status === 'DEAD')
    expect(calls).toEqual({ short: 2, long: 4 })
    expect(await world.rows()).toMatchObject([
      { handledBy: ['long'], lastError: expect.stringMatching(/short.*gave up/) },
    ])
  })
})

onEveryPostgres('what a handler throws', (newWorld) => {
  it('RetryAfter: comes again, and no attempt is counted', async () => {
    const world = await newWorld()
    const outbox = world.outbox({ poller: soon, retry: { maxAttempts: 1 } })
    const attempts: number[] = []
    outbox.on(TYPE, 'limited', (_event, { attempt }) => {
      attempts.push(attempt)
      if (attempts.length < 4) throw new RetryAfter(1)
    })
    await outbox.start()
    await outbox.enqueue(event)
    await until(async () => (await world.rows())[0]?.status === 'DONE')
    expect(attempts).toEqual([1, 1, 1, 1])
    expect(await world.rows()).toMatchObject([{ attempts: 0 }])
  })

  it('Unrecoverable: dead at once', async () => {
    const world = await newWorld()
    const outbox = world.outbox({ poller: soon })
    let calls = 0
    outbox.on(TYPE, 'hopeless', () => {
      calls++
      throw new Unrecoverable('no such customer')
    })
    await outbox.start()
    await outbox.enqueue(event)
    await until(async () => (await world.rows())[0]?.status === 'DEAD')
    expect(calls).toBe(1)
    expect(await world.rows()).toMatchObject([
      { attempts: 1, lastError: expect.stringContaining('no such customer') },
    ])
  })
})

onEveryPostgres('a batch handler', (newWorld) => {
  it('gets many at once, and only those whose result is an error come again', async () => {
    const world = await newWorld()
    const outbox = world.outbox({ poller: soon })
    const sizes: number[] = []
    const seen = new Map<string, number>()
    outbox.onBatch(TYPE, 'collect', { size: 50, waitMs: 20 }, async (events) => {
      sizes.push(events.length)
      return events.map(({ payload, eventId }) => {
        seen.set(eventId, (seen.get(eventId) ?? 0) + 1)
        return payload === 13 && seen.get(eventId) === 1 ? new Error('bad luck') : null
      })
    })
    await outbox.start()
    const events = Array.from({ length: 120 }, (_, payload) => ({ type: TYPE, payload }))
    await outbox.transaction((tx) => tx.publishAll(events))
    await until(async () => (await world.rows()).every((row) => row.status === 'DONE'))
    expect(Math.max(...sizes)).toBe(50)
    expect(sizes.length).toBeLessThan(10)
    expect([...seen.values()].sort()).toEqual([...Array.from({ length: 119 }, () => 1), 2])
  })

  it('that throws fails all of its events, and each is retried', async () => {
    const world = await newWorld()
    const outbox = world.outbox({ poller: soon })
    let calls = 0
    outbox.onBatch(TYPE, 'collect', { size: 10, waitMs: 5 }, () => {
      if (++calls === 1) throw new Error('all of them')
    })
    await outbox.start()
    await outbox.transaction((tx) => tx.publishAll([event, event, event]))
    await until(async () => (await world.rows()).every((row) => row.status === 'DONE'))
    expect((await world.rows()).map((row) => row.attempts)).toEqual([1, 1, 1])
  })

  it('keeps the order of every key', async () => {
    const world = await newWorld()
    const outbox = world.outbox({ poller: soon })
    const seen: Record<string, number[]> = {}
    let failures = 0
    outbox.onBatch(TYPE, 'collect', { size: 8, waitMs: 2 }, async (events) =>
      events.map((one) => {
        const n = one.payload as number
        if (n === 4 && failures++ < 3) return new Error('again')
        const key = one.orderingKey as string
        seen[key] = [...(seen[key] ?? []), n]
        return null
      }),
    )
    await outbox.start()
    const events = Array.from({ length: 60 }, (_, i) => ({
      type: TYPE,
      orderingKey: `k${i % 5}`,
      payload: Math.floor(i / 5),
    }))
    await outbox.transaction((tx) => tx.publishAll(events))
    await until(async () => (await world.rows()).every((row) => row.status === 'DONE'))
    const inOrder = Array.from({ length: 12 }, (_, n) => n)
    expect(seen).toEqual({ k0: inOrder, k1: inOrder, k2: inOrder, k3: inOrder, k4: inOrder })
  })
})

onEveryPostgres('pausing', (newWorld) => {
  it('one type holds it back on all instances, and survives a restart', async () => {
    const world = await newWorld()
    const handled: string[] = []
    const make = () => {
      const one = world.outbox({ doorbell: true, poller: { pollIntervalMs: 300 } })
      one.on('*', 'note', (seen) => void handled.push(seen.eventType))
      return one
    }
    const [here, there] = [make(), make()]
    await here.start()
    await there.start()
    await here.pause('held')
    await until(async () => (await there.paused()).includes('held'))
    for (const outbox of [here, there]) {
      await outbox.enqueue({ type: 'held', payload: null })
      await outbox.enqueue({ type: 'free', payload: null })
    }
    await until(() => handled.length >= 2)
    await here.stop()
    await there.stop()
    const again = make()
    await again.start()
    await again.drain()
    expect(handled.filter((type) => type === 'held').length).toBeLessThanOrEqual(1)
    expect(await again.resume('held')).toBe(true)
    expect(await again.resume('held')).toBe(false)
    await until(() => handled.filter((type) => type === 'held').length === 2)
    await until(async () => (await again.stats()).pending === 0)
  })

  it('everything lets handlers under way finish, and starts nothing', async () => {
    const world = await newWorld()
    const outbox = world.outbox({ poller: soon, dispatcher: { concurrency: 1 } })
    const hold = gate()
    const begun = gate()
    let handled = 0
    outbox.on(TYPE, 'slow', async () => {
      begun.open()
      await hold.opened
      handled++
    })
    await outbox.start()
    await outbox.transaction((tx) => tx.publishAll([event, event, event]))
    await begun.opened
    await outbox.pause()
    hold.open()
    await until(async () => (await world.rows()).filter((row) => row.status === 'DONE').length === 1)
    await until(async () => (await world.rows()).every((row) => row.lockedBy === null))
    await outbox.poll()
    expect(handled).toBe(1)
    await outbox.resume()
    await until(() => handled === 3)
  })
})
