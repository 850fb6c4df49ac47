import { describe, expect, it } from 'vitest'
import { recordingLogger, recordingMetrics } from '../../test/support/recording.js'
import { CommitUnknownError, DuplicateEventError, InvalidSettingError } from '../core/errors.js'
import { memoryStore } from '../stores/memory/index.js'
import { gate } from '../testing/store-conformance/fixtures.js'
import { createTestOutbox, type TestOutboxOptions } from '../testing/test-outbox.js'
import { VirtualClock } from '../testing/virtual-clock.js'

/** A started outbox with two places in its hot queue. */
async function world(options: TestOutboxOptions = {}, onCall: (method: string) => void = () => {}) {
  const clock = new VirtualClock()
  const log = recordingLogger()
  const metrics = recordingMetrics()
  const rings: string[] = []
  const store = memoryStore({
    clock,
    onCall: (method) => {
      if (method === 'ring') rings.push(method)
      onCall(method)
    },
  })
  const outbox = createTestOutbox({
    ...{ clock, store, logger: log, metrics },
    ...options,
    dispatcher: { hotQueueSize: 2, ...options.dispatcher },
  })
  const handled: { id: string; at: number }[] = []
  outbox.on('a', 'note', (event) => void handled.push({ id: event.eventId, at: clock.monotonic() }))
  await outbox.start()
  await clock.advance(0)
  const stop = async () => {
    const stopping = outbox.stop()
    await clock.advance(60_000)
    await stopping
  }
  /** Two events in one transaction go hot: both places are free. */
  const expectRoom = async () => {
    const before = { hot: metrics.total('hot_enqueued'), dropped: metrics.total('hot_dropped') }
    await outbox.transaction((tx) => tx.publishAll([{ type: 'a' }, { type: 'a' }]))
    expect(metrics.total('hot_dropped') - before.dropped).toBe(0)
    expect(metrics.total('hot_enqueued') - before.hot).toBe(2)
  }
  return { outbox, clock, store, log, metrics, rings, handled, stop, expectRoom }
}

const named = (eventId: string) => ({ type: 'a', eventId })

describe('the hot path', () => {
  it('hands a committed event on from memory: without a claim, a ring or a wait', async () => {
    const { outbox, clock, handled, metrics, rings, stop } = await world()
    await clock.advance(100)
    await outbox.enqueue(named('x'))
    await clock.advance(0)
    expect(handled).toEqual([{ id: 'x', at: 100 }])
    expect(metrics.total('hot_enqueued')).toBe(1)
    expect(metrics.total('cold_enqueued')).toBe(0)
    expect(rings).toEqual([])
    await stop()
  })

  it('is not taken before the commit, nor after a rollback', async () => {
    const { outbox, clock, handled, stop, expectRoom } = await world()
    for (let n = 0; n < 5; n++) {
      const failing = outbox.transaction(async (tx) => {
        await tx.publishAll([{ type: 'a' }, { type: 'a' }])
        await clock.advance(50)
        throw new Error('roll back')
      })
      await expect(failing).rejects.toThrow('roll back')
    }
    await clock.advance(60_000)
    expect(handled).toEqual([])
    await expectRoom()
    await stop()
  })

  it('gives its places back when the database refuses the rows', async () => {
    let down = false
    const { outbox, stop, expectRoom } = await world({}, (method) => {
      if (down && method === 'append') throw new Error('down')
    })
    down = true
    for (let n = 0; n < 5; n++) await expect(outbox.enqueue({ type: 'a' })).rejects.toThrow('down')
    down = false
    await expectRoom()
    await stop()
  })

  it('gives its places back for duplicates, which leave the transaction usable', async () => {
    const { outbox, clock, handled, stop, expectRoom } = await world()
    await outbox.enqueue(named('x'))
    await clock.advance(10)
    for (let n = 0; n < 5; n++) {
      await outbox.transaction(async (tx) => {
        await expect(tx.publish(named('x'))).rejects.toThrow(DuplicateEventError)
        await tx.publish(named('x'), { onDuplicate: 'ignore' })
        await tx.publishAll([named('x'), named(`new ${n}`)], { onDuplicate: 'ignore' })
      })
      await clock.advance(10)
    }
    expect(handled.map((one) => one.id)).toEqual(['x', 'new 0', 'new 1', 'new 2', 'new 3', 'new 4'])
    await expectRoom()
    await stop()
  })

  it('writes nothing of a call in which one id is a duplicate', async () => {
    const { outbox, stop, expectRoom } = await world()
    await outbox.transaction(async (tx) => {
      await expect(tx.publishAll([named('x'), named('x')])).rejects.toThrow(DuplicateEventError)
      await tx.publish(named('y'))
      await expect(tx.publishAll([named('z'), named('y')])).rejects.toThrow(DuplicateEventError)
    })
    expect((await outbox.records()).map((row) => row.eventId)).toEqual(['y'])
    await outbox.clock.advance(10)
    await expectRoom()
    await stop()
  })

  it('is not taken when nobody knows whether the commit happened; the poller finds the event', async () => {
    let lost = false
    const { outbox, clock, handled, stop, expectRoom } = await world({}, (method) => {
      if (lost && method === 'committed') throw new Error('connection lost')
    })
    lost = true
    await expect(outbox.enqueue(named('x'))).rejects.toThrow(CommitUnknownError)
    lost = false
    await clock.advance(29_000)
    expect(handled).toEqual([])
    await expectRoom()
    handled.length = 0
    await clock.advance(7_000)
    expect(handled.map((one) => one.id)).toContain('x')
    await stop()
  })

  it('is not taken by events of a savepoint that was rolled back, seen or unseen', async () => {
    const { outbox, clock, handled, stop, expectRoom } = await world()
    await outbox.transaction(async (tx) => {
      await tx.publish(named('kept'))
      await tx
        .transaction(async (inner) => {
          await inner.publish(named('gone'))
          throw new Error('roll back to here')
        })
        .catch(() => {})
      const savepoint = tx.client.savepoint()
      await tx.publish(named('gone unseen'))
      tx.client.rollbackTo(savepoint)
    })
    await clock.advance(60_000)
    expect(handled.map((one) => one.id)).toEqual(['kept'])
    await expectRoom()
    await stop()
  })

  it('is skipped after a transaction that took longer than half the lease', async () => {
    const { outbox, clock, handled, metrics, stop, expectRoom, store } = await world({
      poller: { leaseMs: 10_000 },
    })
    await outbox.transaction(async (tx) => {
      await tx.publish(named('slow'))
      await clock.advance(5_001)
      await tx.publish(named('quick'))
    })
    await clock.advance(0)
    expect(handled.map((one) => one.id)).toEqual(['quick'])
    await clock.advance(10)
    expect(handled.map((one) => one.id)).toEqual(['quick', 'slow'])
    expect(metrics.total('hot_enqueued')).toBe(1)
    expect((await store.list({ limit: 10 })).every((row) => row.attempts === 0)).toBe(true)
    await expectRoom()
    await stop()
  })

  it('is skipped when the outbox was stopped in between, and the row is free at once', async () => {
    const { outbox, clock, handled, stop, store } = await world()
    await outbox.transaction(async (tx) => {
      await tx.publish(named('x'))
      await stop()
    })
    await clock.advance(10)
    expect(handled).toEqual([])
    const [row] = await store.list({ limit: 10 })
    expect(row).toMatchObject({ status: 'NEW', lockedBy: null, attempts: 0 })
    await outbox.start()
    await clock.advance(10)
    expect(handled.map((one) => one.id)).toEqual(['x'])
    await stop()
    expect(clock.timerCount).toBe(0)
  })

  it('is skipped when the queue is full: the event is published, free for the poller at once, and a warning is logged', async () => {
    const { outbox, clock, handled, log, metrics, stop, store } = await world()
    await outbox.transaction(async (tx) => {
      for (let n = 0; n < 10; n++) await tx.publish(named(`${n}`))
    })
    const rows = await store.list({ limit: 20 })
    expect(rows.filter((row) => row.lockedBy !== null)).toHaveLength(2)
    await clock.advance(10)
    expect(handled).toHaveLength(10)
    expect(metrics.total('hot_dropped')).toBe(8)
    const warnings = () => log.lines.filter((line) => line.message.includes('hot queue is full'))
    expect(warnings()).toHaveLength(1)
    await clock.advance(10_000)
    await outbox.transaction((tx) => tx.publishAll([{ type: 'a' }, { type: 'a' }, { type: 'a' }]))
    expect(warnings()).toHaveLength(2)
    await stop()
  })

  it('is bounded by bytes: what does not fit is left to the poller', async () => {
    const { outbox, clock, handled, metrics, stop } = await world({
      dispatcher: { hotQueueSize: 100, queueBytes: 1_000 },
    })
    const payload = 'x'.repeat(400)
    await outbox.transaction((tx) => tx.publishAll(Array.from({ length: 5 }, () => ({ type: 'a', payload }))))
    await clock.advance(10)
    expect(metrics.total('hot_dropped')).toBe(3)
    expect(handled).toHaveLength(5)
    await stop()
  })

  it('is not taken by a delayed event, nor by one that nobody here handles', async () => {
    const { outbox, clock, handled, metrics, rings, stop, store } = await world()
    await outbox.enqueue(named('later'), { delayMs: 1_000 })
    await outbox.enqueue({ type: 'foreign', eventId: 'foreign' })
    expect((await store.list({ limit: 10 })).map((row) => row.lockedBy)).toEqual([null, null])
    expect(rings).toHaveLength(1)
    await clock.advance(999)
    expect(handled).toEqual([])
    await clock.advance(1)
    expect(handled).toEqual([{ id: 'later', at: 1_000 }])
    expect(metrics.total('hot_enqueued')).toBe(0)
    await stop()
  })

  it('keeps a moment of delivery that lies in the future, and takes one that is over', async () => {
    const { outbox, clock, handled, stop } = await world()
    await outbox.enqueue(named('over'), { deliverAt: new Date(clock.now() - 1) })
    await outbox.enqueue(named('future'), { deliverAt: new Date(clock.now() + 2_000) })
    await clock.advance(10)
    expect(handled.map((one) => one.id)).toEqual(['over'])
    await clock.advance(1_989)
    expect(handled).toHaveLength(1)
    await clock.advance(11)
    expect(handled.map((one) => one.id)).toEqual(['over', 'future'])
    await stop()
  })
})

describe('publishing', () => {
  it('takes promises for what they are when the application has put its own in their place', async () => {
    const { outbox, stop } = await world()
    const native = globalThis.Promise
    globalThis.Promise = class<T> extends native<T> {} as PromiseConstructor
    try {
      await outbox.transaction(async (tx) => {
        await tx.publishAll([named('one')])
        await tx.transaction((inner) => inner.publish(named('two')))
        void tx.publish(named('three'))
      })
    } finally {
      globalThis.Promise = native
    }
    expect((await outbox.records()).map((row) => row.eventId)).toEqual(['one', 'two', 'three'])
    await stop()
  })

  it.each([
    [{ delayMs: -1 }, 'delayMs'],
    [{ delayMs: Number.NaN }, 'delayMs'],
    [{ delayMs: Number.POSITIVE_INFINITY }, 'delayMs'],
    [{ deliverAt: new Date(Number.NaN) }, 'deliverAt'],
    [{ deliverAt: '2030-01-01' as unknown as Date }, 'deliverAt'],
    [{ deliverAt: new Date(0), delayMs: 1 }, 'deliverAt'],
    [{ onDuplicate: 'skip' as 'ignore' }, 'onDuplicate'],
  ])('refuses %j by its name, and writes nothing', async (options, setting) => {
    const outbox = createTestOutbox()
    await expect(outbox.enqueue({ type: 'a' }, options)).rejects.toThrow(InvalidSettingError)
    await expect(outbox.enqueue({ type: 'a' }, options)).rejects.toThrow(setting)
    expect(await outbox.records()).toEqual([])
  })

  it('from a handler continues the story of its event', async () => {
    const outbox = createTestOutbox()
    outbox.on('first', 'go on', async (event) => {
      await outbox.enqueue({ type: 'second' })
      await outbox.enqueue({ type: 'third', metadata: { causationId: 'mine', correlationId: 'own' } })
      expect(event.eventType).toBe('first')
    })
    const id = await outbox.enqueue({ type: 'first', metadata: { correlationId: 'story' } })
    await outbox.drain()
    const [second] = await outbox.published('second')
    const [third] = await outbox.published('third')
    expect(second?.metadata).toMatchObject({ causationId: id, correlationId: 'story' })
    expect(third?.metadata).toMatchObject({ causationId: 'mine', correlationId: 'own' })
  })

  it('writes the audit line after the commit, and none after a rollback', async () => {
    const log = recordingLogger()
    const outbox = createTestOutbox({ logger: log })
    const audit = () =>
      log.lines.filter((line) => line.message === 'event published').map((line) => line.fields.event_id)
    await outbox.transaction(async (tx) => {
      await tx.publish(named('x'))
      expect(audit()).toEqual([])
    })
    expect(audit()).toEqual(['x'])
    await outbox
      .transaction(async (tx) => {
        await tx.publish(named('y'))
        throw new Error('roll back')
      })
      .catch(() => {})
    expect(audit()).toEqual(['x'])
  })

  it('in a transaction that the caller began goes cold, and is looked for soon after', async () => {
    const { outbox, store, clock, handled, metrics, stop } = await world()
    const client = store.connect()
    client.begin()
    await outbox.publish(named('x'), { tx: client })
    await clock.advance(60)
    client.commit()
    expect(handled).toEqual([])
    await clock.advance(40)
    expect(handled).toEqual([{ id: 'x', at: 100 }])
    expect(metrics.total('hot_enqueued')).toBe(0)
    await clock.advance(1_000)
    await stop()
  })

  // The timers that look for the row are forgotten by stop().
  it('in a transaction that the caller began leaves no timer after a stop', async () => {
    const { outbox, store, clock, stop: _ } = await world()
    const client = store.connect()
    client.begin()
    await outbox.publish(named('x'), { tx: client })
    client.commit()
    await outbox.stop()
    expect(clock.timerCount).toBe(0)
  })

  it('of a handler hot from a transaction does not see that transaction', async () => {
    const clock = new VirtualClock()
    const outbox = createTestOutbox({ clock })
    const refused: unknown[] = []
    outbox.on('a', 'note', () => outbox.publish({ type: 'b' }).catch((error) => void refused.push(error)))
    await outbox.start()
    const open = gate()
    const running = outbox.transaction(async () => {
      await outbox.enqueue({ type: 'a' })
      await clock.advance(10)
      open.open()
    })
    await running
    expect(refused).toMatchObject([{ code: 'NO_ACTIVE_TRANSACTION' }])
    const stopping = outbox.stop()
    await clock.advance(10)
    await stopping
  })
})
