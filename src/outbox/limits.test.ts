import { describe, expect, it } from 'vitest'
import { counted, recordingLogger } from '../../test/support/recording.js'
import { fixedDelay } from '../core/backoff.js'
import { memoryStore } from '../stores/memory/index.js'
import { gate } from '../testing/store-conformance/fixtures.js'
import { createTestOutbox, type TestOutbox } from '../testing/test-outbox.js'
import { VirtualClock } from '../testing/virtual-clock.js'

const never = () => new Promise<void>(() => {})

function publish(outbox: TestOutbox, type: string, count: number) {
  return outbox.transaction((tx) => tx.publishAll(Array.from({ length: count }, () => ({ type }))))
}

async function stop(outbox: TestOutbox): Promise<void> {
  const stopping = outbox.stop()
  await outbox.clock.advance(60_000)
  await stopping
}

/** The last one on its clock. */
async function stopped(outbox: TestOutbox): Promise<void> {
  await stop(outbox)
  expect(outbox.clock.timerCount).toBe(0)
}

const wait = (outbox: TestOutbox, ms: number) =>
  new Promise<void>((resolve) => outbox.clock.setTimer(resolve, ms))

describe('a handler that cannot keep up', () => {
  it.each([
    ['a hung batch', (outbox: TestOutbox) => outbox.onBatch('slow', 'slow', { size: 2 }, never)],
    ['a hung call', (outbox: TestOutbox) => outbox.on('slow', 'slow', never, { concurrency: 1 })],
  ])('%s does not stop the others, from hot or cold', async (_, register) => {
    const outbox = createTestOutbox({ poller: { pollIntervalMs: 1_000 } })
    const at: number[] = []
    register(outbox)
    outbox.on('fast', 'fast', () => void at.push(outbox.clock.monotonic()))
    await publish(outbox, 'slow', 3_000)
    await publish(outbox, 'fast', 1)
    await outbox.start()
    await publish(outbox, 'slow', 500)
    await outbox.clock.advance(500)
    const before = outbox.clock.monotonic()
    await publish(outbox, 'fast', 1)
    await outbox.clock.advance(500)
    expect(at).toHaveLength(2)
    expect(at[1]).toBe(before)
    expect((await outbox.stats()).failed).toBe(0)
    await stopped(outbox)
    const rows = await outbox.records()
    expect(rows.every((row) => row.attempts === 0 && row.lockedBy === null)).toBe(true)
  })

  it('gets on with its own events as fast as it can, without claims all the time', async () => {
    const clock = new VirtualClock()
    const database = memoryStore({ clock })
    let claimed = 0
    const claim = database.claim.bind(database)
    database.claim = async (request) => {
      const result = await claim(request)
      claimed += result.rows.length
      return result
    }
    const { store, calls } = counted(database)
    const outbox = createTestOutbox({ clock, store })
    let handled = 0
    const handle = async () => {
      await wait(outbox, 10)
      handled++
    }
    outbox.on('slow', 'slow', handle, { concurrency: 2 })
    await publish(outbox, 'slow', 1_000)
    await outbox.start()
    await clock.advance(5_100)
    expect(handled).toBe(1_000)
    expect(calls('claim')).toBeLessThan(60)
    expect(claimed).toBeLessThan(3_000)
    await stopped(outbox)
  })

  it('costs no claims while it hangs', async () => {
    const clock = new VirtualClock()
    const { store, calls } = counted(memoryStore({ clock }))
    const outbox = createTestOutbox({ clock, store })
    outbox.on('slow', 'slow', never, { concurrency: 1 })
    await publish(outbox, 'slow', 1_000)
    await outbox.start()
    await clock.advance(10_000)
    const [claims, settles] = [calls('claim'), calls('settleIfLeased')]
    expect(claims).toBeLessThan(30)
    await clock.advance(60_000)
    expect(calls('claim') - claims).toBeLessThanOrEqual(60_000 / 1_000)
    expect(calls('settleIfLeased')).toBe(settles)
    await stopped(outbox)
  })

  it('leaves what it has no room for to another instance, and is not shown as paused', async () => {
    const clock = new VirtualClock()
    const store = memoryStore({ clock })
    const [hung, other] = [createTestOutbox({ clock, store }), createTestOutbox({ clock, store })]
    let handled = 0
    hung.on('slow', 'slow', never, { concurrency: 1 })
    other.on('slow', 'slow', () => void handled++)
    await hung.start()
    await publish(hung, 'slow', 400)
    await clock.advance(10_000)
    expect(await hung.paused()).toEqual([])
    const instances = await store.instances(60_000)
    expect(instances.map((one) => one.accept.excludedTypes)).toEqual([undefined])
    await other.start()
    await clock.advance(10_000)
    expect(handled).toBeGreaterThanOrEqual(400 - 101)
    await stop(hung)
    await clock.advance(10_000)
    expect(handled).toBe(400)
    await stopped(other)
  })

  it('is drained by hand all the same', async () => {
    const outbox = createTestOutbox()
    let handled = 0
    outbox.on('slow', 'slow', async () => void handled++, { concurrency: 1 })
    await publish(outbox, 'slow', 1_000)
    await outbox.drain()
    expect({ handled, pending: (await outbox.stats()).pending }).toEqual({ handled: 1_000, pending: 0 })
  })
})

describe('timeouts', () => {
  it('of a call that never returns are seen in health and log, with and without a key', async () => {
    const log = recordingLogger()
    const outbox = createTestOutbox({
      ...{ logger: log, dispatcher: { stuckAfterMs: 20_000 }, poller: { leaseMs: 3_000 } },
      retry: { policy: fixedDelay(0), maxAttempts: 3 },
    })
    const seen: string[] = []
    const handle = (event: { eventId: string }) => {
      seen.push(event.eventId)
      return event.eventId.startsWith('stuck') ? never() : undefined
    }
    outbox.on('t', 'h', handle, { timeoutMs: 100 })
    await outbox.start()
    await outbox.enqueue({ type: 't', eventId: 'stuck keyed', orderingKey: 'k' })
    await outbox.enqueue({ type: 't', eventId: 'next', orderingKey: 'k' })
    await outbox.enqueue({ type: 't', eventId: 'stuck free' })
    await outbox.clock.advance(19_000)
    expect((await outbox.health()).stuck).toEqual([])
    await outbox.clock.advance(30_000)
    const health = await outbox.health()
    expect({ ok: health.ok, stuck: [...health.stuck].sort() }).toEqual({
      ...{ ok: false, stuck: ['stuck free', 'stuck keyed'] },
    })
    const lines = log.lines.filter((line) => line.message.includes('has not returned'))
    expect(lines.map((line) => line.fields.event_id).sort()).toEqual(['stuck free', 'stuck keyed'])
    expect(seen.sort()).toEqual(['stuck free', 'stuck keyed'])
    const rows = Object.fromEntries((await outbox.records()).map((row) => [row.eventId, row.attempts]))
    expect(rows).toEqual({ 'stuck keyed': 0, next: 0, 'stuck free': 1 })
    await stopped(outbox)
  })

  it('of an event with a key keep its key on all instances until the call has ended', async () => {
    const clock = new VirtualClock()
    const store = memoryStore({ clock })
    const first = gate()
    const seen: string[] = []
    const make = () => {
      const outbox = createTestOutbox({
        ...{ clock, store, poller: { leaseMs: 3_000 } },
        retry: { maxAttempts: 1, policy: fixedDelay(0) },
      })
      const handle = async ({ eventId }: { eventId: string }) => {
        seen.push(`${eventId} begins`)
        if (eventId === 'a') await first.opened
        seen.push(`${eventId} ends`)
      }
      return outbox.on('t', 'h', handle, { timeoutMs: 100 })
    }
    const outboxes = [make(), make()]
    for (const one of outboxes) await one.start()
    for (const eventId of ['a', 'b']) await outboxes[0]?.enqueue({ type: 't', eventId, orderingKey: 'k' })
    await clock.advance(60_000)
    expect(seen).toEqual(['a begins'])
    first.open()
    await clock.advance(1_000)
    expect(seen).toEqual(['a begins', 'a ends', 'b begins', 'b ends'])
    expect((await store.list({})).map((row) => row.status)).toEqual(['DEAD', 'DONE'])
    for (const one of outboxes) await stop(one)
    expect(clock.timerCount).toBe(0)
  })
})

describe('what is given back unstarted', () => {
  it('counts nowhere as failed, and a pause of something else disturbs nobody', async () => {
    const errors: unknown[] = []
    const outbox = createTestOutbox({
      dispatcher: { interceptors: [{ afterDispatch: (_, error) => void errors.push(error) }] },
    })
    const first = gate()
    let others = 0
    outbox.on('a', 'slow', () => first.opened, { concurrency: 1 })
    outbox.on('a', 'other', () => void others++)
    await outbox.start()
    await publish(outbox, 'a', 5)
    await outbox.clock.advance(10)
    await outbox.pause('zzz')
    await outbox.clock.advance(10)
    expect((await outbox.records()).every((row) => row.lockedBy !== null)).toBe(true)
    await outbox.pause('a')
    await outbox.clock.advance(10)
    expect(errors).toEqual([null, null, null, null])
    expect(await outbox.stats()).toMatchObject({ failed: 0, pending: 5 })
    const rows = await outbox.records()
    expect(rows.map((row) => [row.attempts, row.failures.length])).toEqual(rows.map(() => [0, 0]))
    first.open()
    await outbox.resume('a')
    await outbox.clock.advance(1_000)
    expect(await outbox.stats()).toMatchObject({ failed: 0, pending: 0, done: 5 })
    expect(others).toBe(5)
    await stopped(outbox)
  })
})
