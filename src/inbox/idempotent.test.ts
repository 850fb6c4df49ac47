import { describe, expect, it } from 'vitest'
import { PaperTransport } from '../../test/support/paper-transport.js'
import { recordingLogger } from '../../test/support/recording.js'
import { until } from '../../test/support/until.js'
import { BrokerBus } from '../bus/broker-bus.js'
import { messageOf } from '../bus/message.js'
import { readBusOptions } from '../bus/settings.js'
import { InMemoryEventBus } from '../buses/memory/index.js'
import { EventCatalog } from '../core/catalog.js'
import { defineEvent } from '../core/define-event.js'
import { toEnvelope } from '../core/domain-event.js'
import type { EventEnvelope } from '../core/envelope.js'
import type { HandlerContext } from '../handler.js'
import { createTestOutbox } from '../testing/test-outbox.js'
import { idempotent } from './idempotent.js'
import { memoryProcessedEvents, processedEvents } from './processed-events.js'

const OrderPlaced = defineEvent<{ orderId: string }>('order.placed')
const order = (eventId: string) => OrderPlaced({ orderId: eventId }, { eventId })
const envelopeOf = (eventId: string) =>
  toEnvelope(order(eventId), new EventCatalog()) as EventEnvelope<{ orderId: string }>

function context(handler: string): HandlerContext {
  return { handler, attempt: 1, signal: new AbortController().signal, log: recordingLogger(), scope: null }
}

describe('idempotent: what it is given', () => {
  it('refuses what is no handler, and what keeps no marks, at once', () => {
    expect(() => idempotent(undefined as never, memoryProcessedEvents())).toThrow(
      /handler: must be a function/,
    )
    expect(() => idempotent(() => {}, createTestOutbox() as never)).toThrow(/processedEvents\(outbox\)/)
  })
})

describe('idempotent: a function for outbox.on()', () => {
  it('skips what it has processed, by event and by handler', async () => {
    const marks = memoryProcessedEvents()
    const runs: string[] = []
    const handle = idempotent<{ orderId: string }>(
      (event, { handler }) => void runs.push(`${handler} ${event.payload.orderId}`),
      marks,
    )
    for (const name of ['send', 'send', 'book', 'send']) await handle(envelopeOf('o-1'), context(name))
    await handle(envelopeOf('o-2'), context('send'))
    expect(runs).toEqual(['send o-1', 'book o-1', 'send o-2'])
  })

  it('marks only after success', async () => {
    const marks = memoryProcessedEvents()
    let runs = 0
    const handle = idempotent(async () => {
      expect(await marks.contains({ handler: 'send', eventId: 'o-1' })).toBe(false)
      if (++runs === 1) throw new Error('not yet')
    }, marks)
    await expect(handle(envelopeOf('o-1'), context('send'))).rejects.toThrow('not yet')
    await handle(envelopeOf('o-1'), context('send'))
    await handle(envelopeOf('o-1'), context('send'))
    expect(runs).toBe(2)
  })

  it('fails when the mark cannot be written, so that the event comes again', async () => {
    const marks = memoryProcessedEvents()
    const broken = { ...marks, markProcessed: () => Promise.reject(new Error('no connection')) }
    let runs = 0
    const handle = idempotent(() => ++runs, broken)
    await expect(handle(envelopeOf('o-1'), context('send'))).rejects.toThrow('no connection')
    await expect(handle(envelopeOf('o-1'), context('send'))).rejects.toThrow('no connection')
    expect(runs).toBe(2)
  })

  it('says at level debug that it skipped', async () => {
    const handle = idempotent(() => {}, memoryProcessedEvents())
    const log = recordingLogger()
    await handle(envelopeOf('o-1'), { ...context('send'), log })
    expect(log.lines).toEqual([])
    await handle(envelopeOf('o-1'), { ...context('send'), log })
    expect(log.lines).toMatchObject([{ level: 'debug', message: 'processed before; skipped' }])
  })

  it('keeps the marks under a name of its own when it is given one', async () => {
    const marks = memoryProcessedEvents()
    const handle = idempotent(() => {}, marks, { name: 'before it was renamed' })
    await handle(envelopeOf('o-1'), context('send'))
    expect(await marks.contains({ handler: 'before it was renamed', eventId: 'o-1' })).toBe(true)
    expect(await marks.contains({ handler: 'send', eventId: 'o-1' })).toBe(false)
  })

  it('has one effect when the process dies between the effect and the outcome', async () => {
    const outbox = createTestOutbox({ poller: { leaseMs: 1_000 } })
    const runs: string[] = []
    const marks = processedEvents(outbox)
    const send = idempotent(() => void runs.push('idempotent'), marks)
    let deaths = 0
    const dies =
      (handle: typeof send): typeof send =>
      async (event, given) => {
        await handle(event, given)
        if (++deaths <= 2) throw new Error('the process dies before the outcome is written')
      }
    outbox.on(OrderPlaced, 'send', dies(send))
    outbox.on(
      OrderPlaced,
      'plain',
      dies(async () => void runs.push('plain')),
    )
    await outbox.enqueue(order('o-1'))
    await outbox.drain()
    await outbox.clock.advance(60_000)
    await outbox.drain()
    expect(await outbox.records()).toMatchObject([{ status: 'DONE', attempts: 1 }])
    expect(runs.sort()).toEqual(['idempotent', 'plain', 'plain'])
  })
})

describe('idempotent: an object for bus.subscribe()', () => {
  it('skips what it has processed, and keeps its name', async () => {
    const marks = memoryProcessedEvents()
    const bus = new InMemoryEventBus()
    const runs: string[] = []
    class Noting {
      constructor(readonly name: string) {}
      handle(event: EventEnvelope<{ orderId: string }>) {
        runs.push(`${this.name} ${event.payload.orderId}`)
      }
    }
    for (const name of ['send', 'book']) bus.subscribe(OrderPlaced, idempotent(new Noting(name), marks))
    await bus.publish(order('o-1'))
    await bus.publish(order('o-1'))
    expect(runs).toEqual(['send o-1', 'book o-1'])
  })

  it('logs a skipped duplicate with its ids to the logger that it is given', async () => {
    const logger = recordingLogger()
    const handler = idempotent({ name: 'send', handle: () => {} }, memoryProcessedEvents(), { logger })
    await handler.handle(envelopeOf('o-1').withCorrelationId('c-1'))
    expect(logger.lines).toEqual([])
    await handler.handle(envelopeOf('o-1').withCorrelationId('c-1'))
    const fields = { event_id: 'o-1', event_type: 'order.placed', correlation_id: 'c-1', handler: 'send' }
    expect(logger.lines).toEqual([{ level: 'debug', message: 'processed before; skipped', fields }])
  })

  it('logs a skipped duplicate to the logger of the outbox that calls it', async () => {
    const logger = recordingLogger()
    const outbox = createTestOutbox({ logger })
    const marks = processedEvents(outbox)
    outbox.subscribe(OrderPlaced, idempotent({ name: 'send', handle: () => {} }, marks))
    await marks.markProcessed({ handler: 'send', eventId: 'o-1' })
    await outbox.enqueue(order('o-1'))
    await outbox.drain()
    expect(logger.lines).toContainEqual({
      level: 'debug',
      message: 'processed before; skipped',
      fields: { event_id: 'o-1', event_type: 'order.placed', handler: 'send', attempt: 1 },
    })
  })

  it('logs a skipped duplicate to the logger of the broker bus that calls it', async () => {
    const logger = recordingLogger()
    const transport = new PaperTransport()
    const bus = new BrokerBus(transport, readBusOptions({ group: 'billing', logger }))
    bus.subscribe(OrderPlaced, idempotent({ name: 'send', handle: () => {} }, memoryProcessedEvents()))
    await bus.start()
    for (let delivery = 1; delivery <= 2; delivery++)
      transport.deliver(messageOf(envelopeOf('o-1'), undefined))
    await until(() => transport.acked.flat().length === 2)
    await bus.stop()
    expect(logger.lines).toContainEqual({
      level: 'debug',
      message: 'processed before; skipped',
      fields: { event_id: 'o-1', event_type: 'order.placed', handler: 'send', attempt: 1 },
    })
  })

  it('logs a skipped duplicate with its own ids when a handler of another event publishes it to a bus', async () => {
    const logger = recordingLogger()
    const outbox = createTestOutbox({ logger })
    const bus = new InMemoryEventBus()
    const marks = memoryProcessedEvents()
    bus.subscribe('inner', idempotent({ name: 'send', handle: () => {} }, marks))
    await marks.markProcessed({ handler: 'send', eventId: 'inner-1' })
    outbox.on('outer', 'forward', () =>
      bus.publish({ type: 'inner', eventId: 'inner-1' as never, payload: 1 }),
    )
    await outbox.enqueue({ type: 'outer', payload: 1, metadata: { correlationId: 'of-outer' } })
    await outbox.drain()
    const [line] = logger.lines.filter(({ message }) => message === 'processed before; skipped')
    expect(line?.fields).toEqual({ event_id: 'inner-1', event_type: 'inner', handler: 'send' })
  })

  it('logs a skipped duplicate with its own handler name when another handler of the event calls it', async () => {
    const logger = recordingLogger()
    const outbox = createTestOutbox({ logger })
    const marks = memoryProcessedEvents()
    const { handle } = idempotent({ name: 'send', handle: () => {} }, marks)
    await marks.markProcessed({ handler: 'send', eventId: 'o-1' })
    outbox.on(OrderPlaced, 'outer', (event) => handle(event))
    await outbox.enqueue(order('o-1'))
    await outbox.drain()
    const [line] = logger.lines.filter(({ message }) => message === 'processed before; skipped')
    expect(line?.fields).toMatchObject({ event_id: 'o-1', handler: 'send', attempt: 1 })
  })

  it('refuses a logger that is none', () => {
    const handler = { name: 'send', handle: () => {} }
    expect(() => idempotent(handler, memoryProcessedEvents(), { logger: {} as never })).toThrow('logger')
  })

  it('marks only after success', async () => {
    const marks = memoryProcessedEvents()
    const handler = idempotent({ name: 'send', handle: () => Promise.reject(new Error('no')) }, marks)
    await expect(handler.handle(envelopeOf('o-1'))).rejects.toThrow('no')
    expect(await marks.contains({ handler: 'send', eventId: 'o-1' })).toBe(false)
  })
})

describe('idempotent: names', () => {
  const marks = memoryProcessedEvents()

  it.each(['', 'a\nb', 'x'.repeat(256), undefined, 5])('refuses %j', (name) => {
    const expected = name === undefined ? 'handler name' : 'must be a string of 1 to 255'
    expect(() => idempotent({ name: name as string, handle: () => {} }, marks)).toThrow(expected)
    if (name !== undefined) {
      expect(() => idempotent(() => {}, marks, { name: name as string })).toThrow('handler name')
    }
  })

  it('refuses a function where there is no context, since its name would be unknown', async () => {
    const handle = idempotent(() => {}, marks) as (event: EventEnvelope) => Promise<void>
    await expect(handle(envelopeOf('o-1'))).rejects.toThrow('an object { name, handle }')
  })
})
