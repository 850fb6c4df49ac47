import { describe, expect, it, onTestFinished } from 'vitest'
import { recordingLogger } from '../../test/support/recording.js'
import { world } from '../../test/support/runtime-world.js'
import { gate } from '../testing/store-conformance/fixtures.js'
import type { TestOutboxOptions } from '../testing/test-outbox.js'

const MESSAGE = 'handler still running after the drain timeout, event released'
const EVENT = { type: 'order.placed', metadata: { correlationId: 'c-1' } }

/** Handlers wait for the gate, which opens when the test has ended. */
function hanging(options: TestOutboxOptions = {}) {
  const logger = recordingLogger()
  const made = world({ logger, ...options, dispatcher: { drainTimeoutMs: 1_000, ...options.dispatcher } })
  const { opened, open } = gate()
  onTestFinished(open)
  const warnings = () => logger.lines.filter(({ message }) => message === MESSAGE)
  return {
    ...made,
    warnings,
    hangs: () => opened,
    /** Stops the outbox, and returns the warnings. */
    stop: async () => {
      const stopping = made.outbox.stop()
      await made.clock.advance(1_000)
      await stopping
      return warnings()
    },
  }
}

describe('stop() with running handlers', () => {
  it('logs one warning per running handler, with its name and its event', async () => {
    const { outbox, clock, hangs, stop } = hanging()
    outbox.on('order.placed', 'send-receipt', hangs)
    await outbox.start()
    for (const eventId of ['e-1', 'e-2']) await outbox.enqueue({ ...EVENT, eventId })
    await clock.advance(200)
    const common = { event_type: 'order.placed', correlation_id: 'c-1', handler: 'send-receipt', attempt: 1 }
    expect(await stop()).toEqual([
      { level: 'warn', message: MESSAGE, fields: { event_id: 'e-1', ...common, duration_ms: 1_200 } },
      { level: 'warn', message: MESSAGE, fields: { event_id: 'e-2', ...common, duration_ms: 1_200 } },
    ])
  })

  it('names only those of several handlers that have not ended', async () => {
    const { outbox, clock, hangs, stop } = hanging()
    outbox.on('order.placed', 'succeeds', () => {})
    outbox.on('order.placed', 'hangs', hangs)
    outbox.on('order.placed', 'fails', () => Promise.reject(new Error('no')))
    outbox.on('order.*', 'hangs too', hangs)
    await outbox.start()
    await outbox.enqueue(EVENT)
    await clock.advance(0)
    expect((await stop()).map(({ fields }) => fields.handler)).toEqual(['hangs', 'hangs too'])
  })

  it('logs one warning for a batch handler, with the number of its events', async () => {
    const { outbox, clock, hangs, stop } = hanging()
    outbox.onBatch('order.placed', 'index', { size: 10, waitMs: 0 }, async () => {
      await hangs()
    })
    await outbox.start()
    await outbox.transaction((tx) =>
      tx.publishAll(['e-1', 'e-2', 'e-3'].map((eventId) => ({ ...EVENT, eventId }))),
    )
    await clock.advance(10)
    expect((await stop()).map(({ fields }) => fields)).toMatchObject([
      { event_id: 'e-1', event_type: 'order.placed', handler: 'index', events: 3 },
    ])
  })

  it('does not name handlers that were not called, because an interceptor still runs', async () => {
    const { opened, open } = gate()
    onTestFinished(open)
    const { outbox, clock, stop } = hanging({
      dispatcher: { interceptors: [{ beforeDispatch: () => opened }] },
    })
    outbox.on('order.placed', 'send-receipt', () => {})
    await outbox.start()
    await outbox.enqueue(EVENT)
    await clock.advance(0)
    expect(await stop()).toEqual([])
  })

  it.each(['beforeDispatch', 'afterDispatch'])(
    'logs one warning per event whose %s still runs',
    async (hook) => {
      const { opened, open } = gate()
      onTestFinished(open)
      const logger = recordingLogger()
      const { outbox, clock, stop } = hanging({
        logger,
        dispatcher: { interceptors: [{ [hook]: () => opened }] },
      })
      outbox.on('order.placed', 'send-receipt', () => {})
      outbox.on('order.placed', 'fails', () => Promise.reject(new Error('no')))
      await outbox.start()
      await outbox.enqueue({ ...EVENT, eventId: 'e-1' })
      await clock.advance(200)
      expect(await stop()).toEqual([])
      const fields = { event_id: 'e-1', event_type: 'order.placed', correlation_id: 'c-1', attempt: 1 }
      expect(logger.lines.filter(({ message }) => message.includes('still running'))).toEqual([
        {
          level: 'warn',
          message: 'interceptor still running after the drain timeout, event released',
          fields: { ...fields, duration_ms: 1_200 },
        },
      ])
      expect(await outbox.records()).toMatchObject([{ attempts: 0, lockedUntil: null }])
    },
  )

  it('logs nothing when all handlers end in time, and nothing for events that wait', async () => {
    const { outbox, clock, warnings } = hanging({ dispatcher: { concurrency: 1 } })
    const run = gate()
    outbox.on('order.placed', 'send-receipt', () => run.opened)
    await outbox.start()
    for (const eventId of ['e-1', 'e-2']) await outbox.enqueue({ ...EVENT, eventId })
    await clock.advance(0)
    const stopping = outbox.stop()
    await clock.advance(999)
    run.open()
    await stopping
    expect(warnings()).toEqual([])
  })
})
