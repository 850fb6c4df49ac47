import { describe, expect, it, onTestFinished } from 'vitest'
import { recordingLogger } from '../../test/support/recording.js'
import { turns, world } from '../../test/support/runtime-world.js'
import { gate } from '../testing/store-conformance/fixtures.js'
import { createTestOutbox, type TestOutbox } from '../testing/test-outbox.js'

const DRAIN_TIMEOUT_MS = 1_000
const dispatcher = { drainTimeoutMs: DRAIN_TIMEOUT_MS }

/** Each method with its result after one event was handled, and after none was. */
const METHODS = [
  ['drain', (outbox: TestOutbox) => outbox.drain(), undefined, undefined],
  ['poll', (outbox: TestOutbox) => outbox.poll(), 1, 0],
  ['consumeOne', (outbox: TestOutbox) => outbox.consumeOne(), true, false],
] as const

/** An outbox that is not started, whose handler waits for the gate, and a call by hand that has called the handler. */
async function underWay(call: (outbox: TestOutbox) => Promise<unknown>) {
  const logger = recordingLogger()
  const made = world({ logger, dispatcher })
  const { outbox } = made
  const handler = gate()
  onTestFinished(handler.open)
  const signals: AbortSignal[] = []
  outbox.on('order.placed', 'send-receipt', (_event, { signal }) => {
    signals.push(signal)
    return handler.opened
  })
  await outbox.enqueue({ type: 'order.placed' })
  const called = call(outbox)
  await turns()
  expect(signals).toHaveLength(1)
  return { ...made, logger, called, handler, signal: signals[0] as AbortSignal, calls: () => signals.length }
}

describe.each(METHODS)(
  'stop() while %s() runs on an outbox that is not started',
  (_, call, handled, none) => {
    it('waits for a handler that ends within the drain timeout', async () => {
      const { outbox, clock, called, handler, signal } = await underWay(call)
      let isStopped = false
      const stopping = outbox.stop().then(() => {
        isStopped = true
      })
      await clock.advance(DRAIN_TIMEOUT_MS - 1)
      expect(isStopped).toBe(false)
      handler.open()
      await stopping
      expect(await called).toBe(handled)
      expect(signal.aborted).toBe(false)
      expect(await outbox.records()).toMatchObject([{ status: 'DONE' }])
      expect(clock.timerCount).toBe(0)
    })

    it('aborts a handler that runs beyond the drain timeout, and releases its event without an attempt', async () => {
      const { outbox, clock, store, logger, called, signal } = await underWay(call)
      const stopping = outbox.stop()
      await clock.advance(DRAIN_TIMEOUT_MS)
      await stopping
      expect(signal.reason).toMatchObject({ code: 'SHUTDOWN' })
      expect(await called).toBe(none)
      expect(logger.lines.map(({ message }) => message)).toContain(
        'handler still running after the drain timeout, event released',
      )
      expect(await outbox.records()).toMatchObject([{ attempts: 0, lockedUntil: null, failures: [] }])
      expect(clock.timerCount).toBe(0)
      const other = createTestOutbox({ clock, store })
      const attempts: number[] = []
      other.on('order.placed', 'send-receipt', (_event, { attempt }) => void attempts.push(attempt))
      await other.drain()
      expect(attempts).toEqual([1])
      expect(await outbox.records()).toMatchObject([{ status: 'DONE' }])
    })

    it('starts no other event', async () => {
      const { outbox, clock, called, handler, calls } = await underWay(call)
      await outbox.enqueue({ type: 'order.placed' })
      const stopping = outbox.stop()
      expect(await call(outbox)).toBe(none)
      await turns()
      handler.open()
      await stopping
      await called
      await clock.advance(60_000)
      expect(calls()).toBe(1)
      expect((await outbox.records()).map(({ status }) => status)).toEqual(['DONE', 'NEW'])
    })

    it('waits until the call has written its counters to the registry', async () => {
      const { outbox, called, handler, calls: statements } = await countersUnderWay(call)
      const stopping = outbox.stop()
      handler.open()
      await stopping
      const written = statements.length
      await called
      await turns()
      expect(statements).toHaveLength(written)
      expect((await createTestOutbox({ store: outbox.store, clock: outbox.clock }).stats()).done).toBe(1)
    })

    it('claims nothing if it comes while the call registers', async () => {
      const registry = gate()
      const { outbox, calls } = world({ dispatcher }, async (method) => {
        if (method === 'registerStopped') await registry.opened
      })
      outbox.on('order.placed', 'send-receipt', () => {})
      await outbox.enqueue({ type: 'order.placed' })
      const called = call(outbox)
      await turns()
      const stopping = outbox.stop()
      registry.open()
      await stopping
      expect(await called).toBe(none)
      expect(calls).not.toContain('claim')
    })

    it('leaves an outbox that can be used by hand again', async () => {
      const { outbox, clock, called, handler } = await underWay(call)
      const stopping = outbox.stop()
      await clock.advance(DRAIN_TIMEOUT_MS)
      await stopping
      await called
      handler.open()
      await turns()
      expect(await call(outbox)).toBe(handled)
      expect(await outbox.records()).toMatchObject([{ status: 'DONE' }])
      expect(clock.timerCount).toBe(0)
    })
  },
)

async function countersUnderWay(call: (outbox: TestOutbox) => Promise<unknown>) {
  const made = world({ dispatcher })
  const handler = gate()
  made.outbox.on('order.placed', 'send-receipt', () => handler.opened)
  await made.outbox.enqueue({ type: 'order.placed' })
  const called = call(made.outbox)
  await turns()
  return { ...made, handler, called }
}

describe('stop() on an outbox that is not started', () => {
  it('lets poll() return the number of events that were handled', async () => {
    const { outbox, clock } = world({ dispatcher })
    const { opened, open } = gate()
    onTestFinished(open)
    outbox.on('order.placed', 'send-receipt', ({ payload }) => (payload === 'slow' ? opened : undefined))
    for (const payload of ['quick', 'slow', 'quick']) await outbox.enqueue({ type: 'order.placed', payload })
    const polled = outbox.poll()
    await turns()
    const stopping = outbox.stop()
    await clock.advance(DRAIN_TIMEOUT_MS)
    await stopping
    expect(await polled).toBe(2)
  })

  it('waits for handlers that are left after poll() has failed', async () => {
    let isDown = false
    const options = { dispatcher: { ...dispatcher, unroutableGraceMs: 0 } }
    const { outbox, clock } = world(options, (method) => {
      if (isDown && method === 'instances') throw new Error('unreachable')
    })
    const { opened, open } = gate()
    onTestFinished(open)
    outbox.on('order.placed', 'send-receipt', () => opened)
    await outbox.enqueue({ type: 'order.placed' })
    isDown = true
    await expect(outbox.poll()).rejects.toThrow('unreachable')
    const stopping = outbox.stop()
    await clock.advance(DRAIN_TIMEOUT_MS)
    await stopping
    expect(await outbox.records()).toMatchObject([{ attempts: 0, lockedUntil: null }])
    expect(clock.timerCount).toBe(0)
  })
})
