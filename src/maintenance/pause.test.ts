import { describe, expect, it } from 'vitest'
import { recordingLogger } from '../../test/support/recording.js'
import { defineEvent } from '../core/define-event.js'
import { memoryStore } from '../stores/memory/index.js'
import { gate } from '../testing/store-conformance/fixtures.js'
import { createTestOutbox, type TestOutbox, type TestOutboxOptions } from '../testing/test-outbox.js'
import { VirtualClock } from '../testing/virtual-clock.js'

/** A "database", whose doorbell can be out of order, and outboxes on it. */
function world(onCall: (method: string) => void | Promise<void> = () => {}) {
  const clock = new VirtualClock()
  const store = memoryStore({ clock, onCall })
  const handled: string[] = []
  const outbox = (options: TestOutboxOptions = {}) => {
    const one = createTestOutbox({ clock, store, ...options })
    one.on('a', 'note', (event) => void handled.push(event.eventId))
    one.on('b', 'note', (event) => void handled.push(event.eventId))
    return one
  }
  return { clock, store, handled, outbox }
}

async function stopped(clock: VirtualClock, ...outboxes: TestOutbox[]): Promise<void> {
  const stopping = Promise.all(outboxes.map((one) => one.stop()))
  await clock.advance(60_000)
  await stopping
}

describe('pause', () => {
  it('of one type holds its events and no others, until it is resumed', async () => {
    const { outbox, clock, handled, store } = world()
    const one = outbox()
    await one.start()
    await one.pause('a')
    for (const [type, eventId] of Object.entries({ a: 'a1', b: 'b1' })) await one.enqueue({ type, eventId })
    await clock.advance(60_000)
    expect(handled).toEqual(['b1'])
    expect(await one.paused()).toEqual(['a'])
    const [row] = await store.list({ eventType: 'a' })
    expect(row).toMatchObject({ status: 'NEW', attempts: 0, lockedBy: null })
    expect(await one.resume('a')).toBe(true)
    await clock.advance(0)
    expect(handled).toEqual(['b1', 'a1'])
    await stopped(clock, one)
  })

  it('keeps what nobody handles from being given up', async () => {
    const { outbox, handled } = world()
    const one = outbox({ dispatcher: { unroutableGraceMs: 0 } })
    await one.enqueue({ type: 'nobody' })
    await one.enqueue({ type: 'none' })
    await one.pause()
    await one.drain()
    expect((await one.stats()).dead).toBe(0)
    await one.resume()
    await one.pause('none')
    await one.drain()
    expect(await one.deadLetters.list()).toMatchObject([{ eventType: 'nobody' }])
    expect(handled).toEqual([])
  })

  it('of everything holds everything; resuming one type changes nothing then', async () => {
    const { outbox, clock, handled } = world()
    const one = outbox()
    await one.start()
    await one.pause()
    await one.enqueue({ type: 'a', eventId: 'a1' })
    await one.enqueue({ type: 'b', eventId: 'b1', orderingKey: 'k' })
    expect(await one.resume('a')).toBe(false)
    await clock.advance(60_000)
    expect(handled).toEqual([])
    expect((await one.health()).ok).toBe(true)
    expect(await one.resume()).toBe(true)
    await clock.advance(100)
    expect(handled.sort()).toEqual(['a1', 'b1'])
    await stopped(clock, one)
  })

  it('takes a definition, and refuses patterns and what is no name', async () => {
    const one = createTestOutbox()
    const Placed = defineEvent<{ id: number }>('order.placed')
    await one.pause(Placed)
    expect(await one.paused()).toEqual(['order.placed'])
    expect(await one.resume(Placed)).toBe(true)
    for (const bad of ['order.*', '', null as never, 7 as never]) {
      await expect(one.pause(bad)).rejects.toMatchObject({ code: 'INVALID_SETTING' })
      await expect(one.resume(bad)).rejects.toMatchObject({ code: 'INVALID_SETTING' })
    }
    expect(await one.paused()).toEqual([])
  })

  it('gives back what waits in memory and lets what runs go on', async () => {
    const { outbox, clock, store } = world()
    const one = outbox({ dispatcher: { concurrency: 1 } })
    const first = gate()
    const started: string[] = []
    one.on('slow', 'note', (event) => {
      started.push(event.eventId)
      return first.opened
    })
    await one.start()
    await one.transaction((tx) =>
      tx.publishAll(['s1', 's2', 's3'].map((eventId) => ({ type: 'slow', eventId }))),
    )
    await clock.advance(10)
    await one.pause('slow')
    await clock.advance(10)
    expect((await store.list({})).map((row) => row.lockedBy !== null)).toEqual([true, false, false])
    first.open()
    await clock.advance(10_000)
    expect(started).toEqual(['s1'])
    expect((await store.list({})).map((row) => row.status)).toEqual(['DONE', 'NEW', 'NEW'])
    await one.resume('slow')
    await clock.advance(100)
    expect(started).toEqual(['s1', 's2', 's3'])
    await stopped(clock, one)
  })

  it('holds what another type does not wait for', async () => {
    const { outbox, clock, handled } = world()
    const one = outbox({ dispatcher: { concurrency: 1 } })
    const first = gate()
    one.on('slow', 'note', () => first.opened)
    await one.start()
    await one.transaction((tx) =>
      tx.publishAll([
        { type: 'slow' },
        { type: 'a', eventId: 'a1' },
        { type: 'b', eventId: 'b1' },
        { type: 'a', eventId: 'a2' },
        { type: 'b', eventId: 'b2' },
      ]),
    )
    await clock.advance(10)
    await one.pause('a')
    first.open()
    await clock.advance(10_000)
    expect(handled).toEqual(['b1', 'b2'])
    await stopped(clock, one)
  })

  it('is found by an instance that starts later, and outlives the one that asked for it', async () => {
    const { outbox, clock, handled } = world()
    const first = outbox()
    await first.pause('a')
    await stopped(clock, first)
    const second = outbox()
    await second.start()
    await second.enqueue({ type: 'a' })
    await clock.advance(60_000)
    expect(handled).toEqual([])
    await stopped(clock, second)
  })

  it('reaches the other instances at once by the doorbell', async () => {
    const { outbox, clock, handled } = world()
    const [one, two] = [outbox(), outbox()]
    await one.start()
    await two.start()
    await clock.advance(10)
    await one.pause('a')
    await clock.advance(0)
    await two.enqueue({ type: 'a', eventId: 'a1' })
    await clock.advance(60_000)
    expect(handled).toEqual([])
    await one.resume('a')
    await clock.advance(5)
    expect(handled).toEqual(['a1'])
    await stopped(clock, one, two)
  })

  it('reaches them with their next heartbeat when the ring is lost', async () => {
    const { outbox, clock, handled } = world((method) => {
      if (method === 'ring') throw new Error('lost')
    })
    const [one, two] = [outbox(), outbox()]
    await two.start()
    await one.pause('a')
    await clock.advance(10_000)
    await two.enqueue({ type: 'a', eventId: 'a1' })
    await clock.advance(10_000)
    expect(handled).toEqual([])
    await one.resume('a')
    await clock.advance(10_000)
    expect(handled).toEqual(['a1'])
    await stopped(clock, one, two)
  })

  it('holds for work by hand too', async () => {
    const { outbox, handled } = world()
    const [one, two] = [outbox(), outbox()]
    await two.drain()
    await one.pause('a')
    await one.enqueue({ type: 'a', eventId: 'a1' })
    await one.enqueue({ type: 'b', eventId: 'b1' })
    await two.drain()
    expect(handled).toEqual(['b1'])
    expect(await two.consumeOne()).toBe(false)
    await one.resume('a')
    expect(await two.poll()).toBe(1)
    expect(handled).toEqual(['b1', 'a1'])
  })

  it('leaves a line in the log', async () => {
    const log = recordingLogger()
    const one = createTestOutbox({ logger: log })
    await one.pause('a')
    await one.resume('a')
    await one.resume('a')
    const lines = log.lines.map(({ message, fields }) => [message, fields.event_type])
    expect(lines).toEqual([
      ['paused', 'a'],
      ['resumed', 'a'],
    ])
  })
})

describe('pause and races', () => {
  it('holds an event that is published in a transaction begun before', async () => {
    const { outbox, clock, handled } = world()
    const one = outbox()
    await one.start()
    await one.transaction(async (tx) => {
      await tx.publish({ type: 'a', eventId: 'a1' })
      await one.pause('a')
    })
    await clock.advance(20_000)
    expect(handled).toEqual([])
    await one.resume('a')
    await clock.advance(0)
    expect(handled).toEqual(['a1'])
    await stopped(clock, one)
  })

  it.each(['claim', 'claimOrdered'])('holds what a %s under way brings', async (slow) => {
    const asked = gate()
    let slowly = false
    const { outbox, clock, handled, store } = world((method) => {
      if (method === slow && slowly) return asked.opened
    })
    const one = outbox()
    await one.start()
    await clock.advance(0)
    slowly = true
    const orderingKey = slow === 'claimOrdered' ? { orderingKey: 'k' } : {}
    await outbox().enqueue({ type: 'a', eventId: 'a1', ...orderingKey })
    await clock.advance(0)
    await one.pause('a')
    asked.open()
    await clock.advance(20_000)
    expect(handled).toEqual([])
    expect((await store.list({}))[0]).toMatchObject({ lockedBy: null, attempts: 0 })
    await one.resume('a')
    await clock.advance(100)
    expect(handled).toEqual(['a1'])
    await stopped(clock, one)
  })

  it('of a full cold queue does not leave the poller waiting for room for ever', async () => {
    const { outbox, clock, handled } = world()
    const writer = outbox()
    const one = outbox({ dispatcher: { concurrency: 1, coldQueueSize: 10 }, poller: { batchSize: 5 } })
    const first = gate()
    let slow = 0
    one.on('slow', 'note', async () => {
      await first.opened
      slow++
    })
    await one.start()
    await writer.transaction((tx) => tx.publishAll(Array.from({ length: 50 }, () => ({ type: 'slow' }))))
    // Longer than a poll interval: by now nothing but room wakes it.
    await clock.advance(20_000)
    await one.pause('slow')
    await writer.enqueue({ type: 'a', eventId: 'a1' })
    first.open()
    await clock.advance(20_000)
    expect({ slow, handled }).toEqual({ slow: 1, handled: ['a1'] })
    await one.resume('slow')
    await clock.advance(20_000)
    expect(slow).toBe(50)
    await stopped(clock, one)
  })

  it('and resume, one right after the other, end as the last of them says', async () => {
    const answers: ReturnType<typeof gate>[] = []
    let slowly = false
    const { outbox, clock, handled } = world((method) => {
      if (method !== 'paused' || !slowly) return
      const answer = gate()
      answers.push(answer)
      return answer.opened
    })
    const one = outbox()
    await one.start()
    slowly = true
    const both = Promise.all([one.pause('a'), one.resume('a')])
    await clock.advance(0)
    // Whatever is asked is answered in the wrong order.
    for (let round = 0; round < 5; round++) {
      for (const answer of answers.splice(0).reverse()) {
        answer.open()
        await clock.advance(0)
      }
    }
    await both
    slowly = false
    await one.enqueue({ type: 'a', eventId: 'a1' })
    await clock.advance(0)
    expect({ paused: await one.paused(), handled }).toEqual({ paused: [], handled: ['a1'] })
    await stopped(clock, one)
  })

  it('a start that cannot learn what is paused fails and leaves nothing behind', async () => {
    const { outbox, clock } = world((method) => {
      if (method === 'paused' || method === 'heartbeat') throw new Error('down')
    })
    await expect(outbox().start()).rejects.toThrow('down')
    expect(clock.timerCount).toBe(0)
  })
})
