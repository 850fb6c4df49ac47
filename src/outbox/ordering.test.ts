import { describe, expect, it } from 'vitest'
import { fixedDelay } from '../core/backoff.js'
import { defineEvent } from '../core/define-event.js'
import { memoryStore } from '../stores/memory/index.js'
import { gate } from '../testing/store-conformance/fixtures.js'
import { createTestOutbox, type TestOutbox, type TestOutboxOptions } from '../testing/test-outbox.js'
import { VirtualClock } from '../testing/virtual-clock.js'

const Moved = defineEvent<{ id: string; n: number }>('moved', {
  aggregateType: 'thing',
  aggregateId: (payload) => payload.id,
  ordered: true,
})

/** `a1 a2 b1`: events 1 and 2 of key a, and 1 of key b, in one transaction. */
function publish(outbox: TestOutbox, text: string) {
  const events = text.split(' ').map((id) => Moved({ id: id.slice(0, 1), n: Number(id.slice(1)) }))
  return outbox.transaction((tx) => tx.publishAll(events))
}

const nameOf = ({ payload }: { payload: { id: string; n: number } }) => `${payload.id}${payload.n}`

async function stopped(clock: VirtualClock, ...outboxes: TestOutbox[]): Promise<void> {
  const stopping = Promise.all(outboxes.map((one) => one.stop()))
  await clock.advance(60_000)
  await stopping
  expect(clock.timerCount).toBe(0)
}

/** Several workers on one store; handlers are held by gates where a test says so. */
function world(options: TestOutboxOptions = {}, workers = 1) {
  const clock = new VirtualClock()
  const store = memoryStore({ clock })
  const started: string[] = []
  const held = new Map<string, ReturnType<typeof gate>>()
  const broken = new Set<string>()
  const outboxes = Array.from({ length: workers }, () => {
    const outbox = createTestOutbox({ clock, store, retry: { policy: fixedDelay(100) }, ...options })
    outbox.on(Moved, 'note', async (event) => {
      started.push(nameOf(event))
      await held.get(nameOf(event))?.opened
      if (broken.has(nameOf(event))) throw new Error('broken')
    })
    return outbox
  })
  const hold = (...names: string[]) => {
    for (const name of names) held.set(name, gate())
  }
  const letGo = (...names: string[]) => {
    for (const name of names) held.get(name)?.open()
  }
  const [outbox] = outboxes as [TestOutbox]
  return { clock, store, started, broken, outbox, outboxes, hold, letGo }
}

const ofKey = (names: readonly string[], key: string) => names.filter((name) => name.startsWith(key))

describe('ordering keys', () => {
  it('are handled in order, one event at a time, beside other keys, within milliseconds', async () => {
    const { outbox, clock, started, hold, letGo } = world()
    hold('a1')
    await outbox.start()
    await publish(outbox, 'a1 a2 b1 a3 b2')
    await clock.advance(10)
    expect([...started].sort()).toEqual(['a1', 'b1', 'b2'])
    letGo('a1')
    await clock.advance(50)
    expect(ofKey(started, 'a')).toEqual(['a1', 'a2', 'a3'])
    expect(ofKey(started, 'b')).toEqual(['b1', 'b2'])
    await stopped(clock, outbox)
  })

  it('longer than a run are worked off by a drain', async () => {
    const { outbox, started } = world()
    const names = Array.from({ length: 30 }, (_, n) => `a${n}`)
    for (const name of names) await publish(outbox, name)
    await outbox.drain()
    expect(started).toEqual(names)
  })

  it('longer than a run are worked off by a started outbox without waiting for a poll', async () => {
    const { outbox, clock, started } = world()
    const names = Array.from({ length: 30 }, (_, n) => `a${n}`)
    await outbox.start()
    await publish(outbox, names.join(' '))
    await clock.advance(200)
    expect(started).toEqual(names)
    await stopped(clock, outbox)
  })

  it('wait for a head that failed, while the others go on', async () => {
    const { outbox, clock, started, broken } = world()
    broken.add('a1')
    await outbox.start()
    await publish(outbox, 'a1 a2 b1 b2')
    await clock.advance(90)
    expect(started).toEqual(['a1', 'b1', 'b2'])
    broken.clear()
    await clock.advance(50)
    expect(ofKey(started, 'a')).toEqual(['a1', 'a1', 'a2'])
    await stopped(clock, outbox)
  })

  it('go on behind a dead event, or wait until somebody acts', async () => {
    for (const onDead of ['continue', 'halt'] as const) {
      const { outbox, clock, started, broken } = world({ ordering: { onDead }, retry: { maxAttempts: 1 } })
      broken.add('a1')
      await publish(outbox, 'a1 a2 a3')
      await outbox.drain()
      expect(started).toEqual(onDead === 'halt' ? ['a1'] : ['a1', 'a2', 'a3'])
      broken.clear()
      await outbox.deadLetters.retry({ all: true })
      await outbox.drain()
      expect(started).toEqual(onDead === 'halt' ? ['a1', 'a1', 'a2', 'a3'] : ['a1', 'a2', 'a3', 'a1'])
      await stopped(clock, outbox)
    }
  })

  it('go on at once when the dead event that halted their key is discarded', async () => {
    const { outbox, clock, started, broken } = world({
      ordering: { onDead: 'halt' },
      retry: { maxAttempts: 1 },
    })
    broken.add('a1')
    await outbox.start()
    await publish(outbox, 'a1 a2')
    await clock.advance(1_000)
    expect(started).toEqual(['a1'])
    await outbox.deadLetters.discard({ all: true })
    await clock.advance(0)
    expect(started).toEqual(['a1', 'a2'])
    await stopped(clock, outbox)
  })

  it('by consumeOne come one event at a time, and the others of the run are free meanwhile', async () => {
    const { outbox, started, store } = world()
    await publish(outbox, 'a1 a2 a3')
    expect(await outbox.consumeOne()).toBe(true)
    expect(started).toEqual(['a1'])
    expect((await store.list({})).map((row) => [row.status, row.lockedBy])).toEqual([
      ['DONE', null],
      ['NEW', null],
      ['NEW', null],
    ])
    while (await outbox.consumeOne());
    expect(started).toEqual(['a1', 'a2', 'a3'])
  })

  it('are shared by several instances, and never handled by two of them at once', async () => {
    const { outboxes, clock, started, hold, letGo } = world({}, 3)
    hold('a1', 'a2')
    for (const one of outboxes) await one.start()
    await publish(outboxes[1] as TestOutbox, 'a1 a2 a3 a4 a5 a6 b1 c1')
    await clock.advance(20_000)
    expect(ofKey(started, 'a')).toEqual(['a1'])
    letGo('a1')
    await clock.advance(20_000)
    expect(ofKey(started, 'a')).toEqual(['a1', 'a2'])
    letGo('a2')
    await clock.advance(100)
    expect(ofKey(started, 'a')).toEqual(['a1', 'a2', 'a3', 'a4', 'a5', 'a6'])
    expect(started).toHaveLength(8)
    await stopped(clock, ...outboxes)
  })

  it('with a delay wait for it, and hold back what is behind', async () => {
    const { outbox, clock, started } = world()
    await outbox.start()
    await outbox.transaction((tx) => tx.publish(Moved({ id: 'a', n: 1 }), { delayMs: 3_000 }))
    await publish(outbox, 'a2 b1')
    await clock.advance(2_990)
    expect(started).toEqual(['b1'])
    await clock.advance(100)
    expect(started).toEqual(['b1', 'a1', 'a2'])
    await stopped(clock, outbox)
  })

  it('wait for a paused event at their head, and stop before one', async () => {
    const { outbox, clock, started, hold, letGo } = world()
    outbox.on('other', 'note', () => void started.push('other'))
    hold('a1')
    await outbox.start()
    await outbox.transaction(async (tx) => {
      await tx.publish(Moved({ id: 'a', n: 1 }))
      await tx.publish({ type: 'other', aggregateType: 'thing', orderingKey: keyOf('a') })
      await tx.publish(Moved({ id: 'a', n: 2 }))
    })
    await clock.advance(20)
    await outbox.pause('other')
    letGo('a1')
    await clock.advance(20_000)
    expect(started).toEqual(['a1'])
    await outbox.resume('other')
    await clock.advance(100)
    expect(started).toEqual(['a1', 'other', 'a2'])
    await stopped(clock, outbox)
  })
})

/** Of a definition that is `ordered`. */
function keyOf(id: string): string {
  return Moved({ id, n: 0 }).toEnvelope().orderingKey ?? ''
}

describe('ordering keys and a stop', () => {
  it('what is behind the running event is given back when that has ended', async () => {
    const { outbox, clock, started, hold, letGo, store } = world()
    hold('a1')
    await outbox.start()
    await publish(outbox, 'a1 a2 a3')
    await clock.advance(10)
    const stopping = outbox.stop()
    await clock.advance(10)
    letGo('a1')
    await clock.advance(10)
    await stopping
    expect(started).toEqual(['a1'])
    expect((await store.list({})).map((row) => [row.status, row.lockedBy, row.attempts])).toEqual([
      ['DONE', null, 0],
      ['NEW', null, 0],
      ['NEW', null, 0],
    ])
    expect(clock.timerCount).toBe(0)
  })

  it('the whole run is given back when the drain timeout is over', async () => {
    const { outbox, clock, started, hold, letGo, store } = world()
    hold('a1')
    await outbox.start()
    await publish(outbox, 'a1 a2 a3')
    await clock.advance(10)
    const stopping = outbox.stop()
    await clock.advance(5_000)
    await stopping
    const rows = await store.list({})
    expect(rows.map((row) => [row.status, row.lockedBy, row.attempts])).toEqual([
      ['NEW', null, 0],
      ['NEW', null, 0],
      ['NEW', null, 0],
    ])
    letGo('a1')
    await clock.advance(100)
    expect((await store.list({})).map((row) => row.status)).toEqual(['NEW', 'NEW', 'NEW'])
    await outbox.drain()
    expect(started).toEqual(['a1', 'a1', 'a2', 'a3'])
    await stopped(clock, outbox)
  })
})

/** One instance that can be cut off and holds its first event until the gate opens, and another beside it. */
async function cutOffWorld() {
  let down = false
  const clock = new VirtualClock()
  const store = memoryStore({ clock })
  const flaky = new Proxy(store, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name, target)
      if (name !== 'renewIfLeased' && name !== 'settleIfLeased') return value
      return async (...args: unknown[]) => {
        if (down) throw new Error('down')
        return (value as (...args: unknown[]) => unknown).apply(target, args)
      }
    },
  })
  const started: string[] = []
  const first = gate()
  const cutOff = createTestOutbox({ clock, store: flaky, poller: { leaseMs: 3_000 } })
  cutOff.on(Moved, 'note', async (event) => {
    started.push(`cut off ${nameOf(event)}`)
    if (nameOf(event) === 'a1') await first.opened
  })
  const other = createTestOutbox({ clock, store, poller: { leaseMs: 3_000 } })
  other.on(Moved, 'note', (event) => void started.push(`other ${nameOf(event)}`))
  await cutOff.start()
  await publish(cutOff, 'a1 a2 a3')
  await clock.advance(10)
  down = true
  await other.start()
  await clock.advance(20_000)
  const connect = () => {
    down = false
  }
  return { clock, store, started, first, cutOff, other, connect }
}

describe('ordering keys and lost leases', () => {
  it('a run whose head was taken over is not gone on with', async () => {
    const { clock, store, started, first, cutOff, other, connect } = await cutOffWorld()
    first.open()
    await clock.advance(1_000)
    connect()
    await clock.advance(20_000)
    expect(started).toEqual(['cut off a1', 'other a1', 'other a2', 'other a3'])
    expect((await store.list({})).map((row) => row.status)).toEqual(['DONE', 'DONE', 'DONE'])
    await stopped(clock, cutOff, other)
  })

  it('a handler that runs on without its lease holds up its key in its own process, and in no other', async () => {
    const { clock, store, started, first, cutOff, other, connect } = await cutOffWorld()
    connect()
    started.length = 0
    for (let n = 4; n < 14; n++) {
      await publish(cutOff, `a${n} b${n}`)
      await clock.advance(5_000)
    }
    const inOrder = Array.from({ length: 10 }, (_, n) => `other a${n + 4}`)
    expect(started.filter((name) => / a/.test(name))).toEqual(inOrder)
    await Promise.all([other.stop(), clock.advance(1_000)])
    started.length = 0
    await publish(cutOff, 'a14 b14')
    await clock.advance(20_100)
    expect(started).toEqual(['cut off b14'])
    const waiting = (await store.list({ limit: 100 })).filter((row) => row.status !== 'DONE')
    expect(waiting).toMatchObject([{ aggregateId: 'a', lockedBy: null, attempts: 0 }])
    first.open()
    await clock.advance(1_400)
    expect(started).toEqual(['cut off b14', 'cut off a14'])
    await stopped(clock, cutOff)
  })
})
