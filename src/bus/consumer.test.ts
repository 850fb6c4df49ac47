import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { z } from 'zod'
import { PaperTransport } from '../../test/support/paper-transport.js'
import { randomOf } from '../../test/support/random.js'
import { recordingLogger } from '../../test/support/recording.js'
import { gate, turns } from '../../test/support/until.js'
import { fixedDelay } from '../core/backoff.js'
import { defineEvent } from '../core/define-event.js'
import { type EnvelopeInit, EventEnvelope } from '../core/envelope.js'
import { RetryAfter } from '../core/errors.js'
import { type Logger, silentLogger } from '../observe/logger.js'
import { HOSTILE_VALUES } from '../testing/hostile-values.js'
import { VirtualClock } from '../testing/virtual-clock.js'
import { BrokerBus } from './broker-bus.js'
import { messageOf } from './message.js'
import { type BusOptions, readBusOptions } from './settings.js'

const OPTIONS: BusOptions = {
  group: 'billing',
  logger: silentLogger,
  retry: { maxAttempts: 3, policy: fixedDelay(1_000) },
}

async function world(handle: (event: EventEnvelope) => unknown, options: BusOptions = {}) {
  const transport = new PaperTransport()
  const clock = new VirtualClock()
  const bus = new BrokerBus(transport, readBusOptions({ ...OPTIONS, clock, ...options }))
  const calls: string[] = []
  bus.subscribe('*', {
    name: 'work',
    handle: (event) => {
      calls.push(event.eventId)
      return handle(event)
    },
  })
  await bus.start()
  const deliver = (init: Partial<EnvelopeInit> = {}, deliveryCount = 1) =>
    transport.deliver(
      messageOf(EventEnvelope.create({ eventType: 'order.placed', ...init }), undefined),
      deliveryCount,
    )
  return { transport, clock, bus, calls, deliver }
}

async function stopped(bus: BrokerBus, clock: VirtualClock): Promise<void> {
  const stopping = bus.stop()
  await clock.advance(60_000)
  await stopping
  expect(clock.timerCount).toBe(0)
}

describe('log of a consumer', () => {
  it('logs one line per handler call and one error per dead-lettered message', async () => {
    const logger = recordingLogger()
    const { deliver, bus, clock } = await world(
      ({ eventId }) => {
        if (eventId === 'bad') throw new Error('card 4111')
      },
      { logger, redact: (message) => message.replace('4111', '…'), retry: { maxAttempts: 1 } },
    )
    const metadata = { correlationId: 'c-1', userId: 'u-4711' }
    deliver({ eventId: 'good', metadata, payload: { card: '4111' } })
    await turns(50)
    deliver({ eventId: 'bad', metadata })
    await turns(50)
    const event = { event_type: 'order.placed', correlation_id: 'c-1', attempt: 1 }
    const call = { ...event, handler: 'work', duration_ms: expect.any(Number) }
    const failed = { outcome: 'failed', error: 'Error', error_message: 'card …' }
    const dead = { outcome: 'dead', error_message: 'work: Error: card …' }
    expect(logger.lines).toEqual([
      { level: 'info', message: 'event handled', fields: { ...call, event_id: 'good', outcome: 'done' } },
      { level: 'warn', message: 'handler failed', fields: { ...call, event_id: 'bad', ...failed } },
      {
        level: 'error',
        message: 'handlers failed permanently, dead-lettering the message',
        fields: { ...event, event_id: 'bad', ...dead },
      },
    ])
    await stopped(bus, clock)
  })
})

describe('stop of a consumer', () => {
  it('logs one warning per handler that still runs after the drain timeout, and releases the messages', async () => {
    const logger = recordingLogger()
    const run = gate()
    onTestFinished(run.open)
    const { deliver, bus, clock, transport } = await world(
      ({ eventId }) => (eventId === 'quick' ? undefined : run.opened),
      { logger, drainTimeoutMs: 1_000 },
    )
    deliver({ eventId: 'slow 1', metadata: { correlationId: 'c-1' } })
    deliver({ eventId: 'slow 2' })
    deliver({ eventId: 'quick' })
    await turns(50)
    await stopped(bus, clock)
    const message = 'handler still running after the drain timeout, message released'
    const event = { event_type: 'order.placed', handler: 'work', attempt: 1 }
    expect(logger.lines.filter(({ level }) => level === 'warn')).toEqual([
      { level: 'warn', message, fields: { event_id: 'slow 1', correlation_id: 'c-1', ...event } },
      { level: 'warn', message, fields: { event_id: 'slow 2', ...event } },
    ])
    expect(transport.released).toHaveLength(2)
  })
})

describe('consumer with hostile hooks', () => {
  const manners: Record<string, (make: () => unknown) => () => unknown> = {
    throws: (make) => () => {
      throw make()
    },
    returns: (make) => make,
    'rejects with': (make) => () => Promise.reject(make()),
  }
  it.each(Object.entries(manners))('handles all messages when a hook %s any value', async (_, manner) => {
    const unhandled: unknown[] = []
    const recordUnhandled = (reason: unknown) => void unhandled.push(reason)
    process.on('unhandledRejection', recordUnhandled)
    onTestFinished(() => void process.off('unhandledRejection', recordUnhandled))
    for (const [name, make] of Object.entries(HOSTILE_VALUES)) {
      const act = manner(make)
      const seen = new Set<string>()
      const fails = ({ eventId }: EventEnvelope) => {
        if (seen.has(eventId)) return
        seen.add(eventId)
        throw new Error('not yet')
      }
      const { deliver, bus, clock, transport } = await world(fails, {
        concurrency: 1,
        retry: { maxAttempts: 3, policy: { delayMs: act as () => number } },
        redact: act as () => string,
        logger: { debug: act, info: act, warn: act, error: act } as unknown as Logger,
        tracer: { start: act as () => undefined },
      })
      for (let n = 0; n < 3; n++) deliver({ eventId: `e${n}` })
      for (let round = 0; round < 3; round++) {
        await turns(50)
        await clock.advance(60_000)
      }
      expect(transport.acked.flat(), name).toHaveLength(3)
      await stopped(bus, clock)
    }
    expect(unhandled).toEqual([])
  })
})

describe('consumer', () => {
  it('acknowledges messages that finish during an ack call together in the next call', async () => {
    const slow = gate()
    const { transport, deliver, bus, clock } = await world(() => {})
    transport.onAck = () => slow.opened
    deliver()
    await turns(20)
    for (let n = 0; n < 10; n++) deliver()
    await turns(20)
    expect(transport.acked.map((batch) => batch.length)).toEqual([1])
    slow.open()
    await turns(20)
    expect(transport.acked.map((batch) => batch.length)).toEqual([1, 10])
    await stopped(bus, clock)
  })

  it('retries a failed message after the delay of its policy, and dead-letters it after the last attempt', async () => {
    const { transport, deliver, calls, clock, bus } = await world(() => {
      throw new Error('no')
    })
    const message = deliver({ eventId: 'a' })
    await turns(20)
    expect(calls.length).toBe(1)
    await clock.advance(999)
    expect(calls.length).toBe(1)
    await clock.advance(1)
    expect(calls.length).toBe(2)
    await clock.advance(1_000)
    expect(calls.length).toBe(3)
    expect(transport.deadLettered).toEqual([
      { message, reason: { group: 'billing', handlers: ['work'], attempts: 3, error: 'work: Error: no' } },
    ])
    expect(transport.acked).toEqual([])
    await stopped(bus, clock)
    expect(transport.released).toEqual([])
  })

  it.each([-1, Number.NaN, Number.POSITIVE_INFINITY])(
    'retries after 60 seconds when the policy returns %s',
    async (delayMs) => {
      const { deliver, calls, clock, bus } = await world(
        () => {
          throw new Error('no')
        },
        { retry: { maxAttempts: 3, policy: { delayMs: () => delayMs } } },
      )
      deliver()
      await clock.advance(59_999)
      expect(calls.length).toBe(1)
      await clock.advance(1)
      expect(calls.length).toBe(2)
      await stopped(bus, clock)
    },
  )

  it('waits as long as RetryAfter asks for, and counts no attempt', async () => {
    let isReady = false
    const { transport, deliver, clock, bus } = await world(() => {
      if (!isReady) throw new RetryAfter(5_000)
    })
    deliver()
    await clock.advance(14_000)
    isReady = true
    expect(transport.acked).toEqual([])
    await clock.advance(1_000)
    expect(transport.acked.length).toBe(1)
    await stopped(bus, clock)
  })

  it('neither starts nor settles a message whose lease was lost', async () => {
    const finish = gate()
    const { transport, deliver, calls, clock, bus } = await world(() => finish.opened, { concurrency: 1 })
    const first = deliver({ eventId: 'a' })
    const second = deliver({ eventId: 'b' })
    await turns(20)
    transport.consuming?.onLeaseLost([first, second])
    finish.open()
    await turns(20)
    expect(calls).toEqual(['a'])
    await stopped(bus, clock)
    expect([transport.acked, transport.released, transport.deadLettered]).toEqual([[], [], []])
  })

  it('waits for the running handler of a redelivered message, and does not call the handler again if it succeeds', async () => {
    const finish = gate()
    const { transport, deliver, calls, clock, bus } = await world(() => finish.opened)
    const first = deliver({ eventId: 'a' })
    await turns(20)
    transport.consuming?.onLeaseLost([first])
    const again = deliver({ eventId: 'a' }, 2)
    await turns(20)
    expect(calls).toEqual(['a'])
    finish.open()
    await turns(20)
    expect(calls).toEqual(['a'])
    expect(transport.acked).toEqual([[again]])
    await stopped(bus, clock)
  })

  it('dead-letters a message with too many deliveries without calling its handler', async () => {
    const { transport, deliver, calls, clock, bus } = await world(() => {})
    deliver({}, 14)
    await turns(20)
    expect(calls).toEqual([])
    expect(transport.deadLettered).toMatchObject([
      { reason: { handlers: [], error: expect.stringContaining('14 times') } },
    ])
    deliver({}, 13)
    await clock.advance(100)
    expect(calls.length).toBe(1)
    await stopped(bus, clock)
  })

  it('dead-letters the message that crashes its consumers, and no message that was delivered with it', async () => {
    const random = randomOf(7)
    vi.spyOn(Math, 'random').mockImplementation(() => random.below(1_000_000) / 1_000_000)
    onTestFinished(() => void vi.restoreAllMocks())
    const all = Array.from({ length: 30 }, (_, n) =>
      EventEnvelope.create({ eventType: 'a', eventId: `e${n}` }),
    )
    let left = all
    const deadLettered: string[] = []
    for (let life = 1; life <= 14 && left.length > 0; life++) {
      const died = gate()
      const never = gate()
      let isDead = false
      const { transport, clock } = await world(
        async ({ eventId }) => {
          if (eventId !== 'e0') return
          isDead = true
          died.open()
          await never.opened
        },
        { concurrency: 4 },
      )
      const ackedIds = new Set<string>()
      transport.ack = async (messages) => {
        // A dead process cannot acknowledge messages.
        if (!isDead) for (const { attributes } of messages) ackedIds.add(String(attributes.id))
      }
      for (const event of left) transport.deliver(messageOf(event, undefined), life)
      await Promise.race([died.opened, clock.advance(60_000)])
      deadLettered.push(...transport.deadLettered.map(({ message }) => String(message.attributes.id)))
      left = left.filter(({ eventId }) => !ackedIds.has(eventId) && !deadLettered.includes(eventId))
    }
    expect(deadLettered).toEqual(['e0'])
    expect(left).toEqual([])
  })

  it('handles events with the same id from different sources', async () => {
    const finish = gate()
    const { transport, calls, clock, bus } = await world(() => finish.opened)
    const event = EventEnvelope.create({ eventType: 'a', eventId: '1' })
    for (const source of ['/a', '/b', '/c']) transport.deliver(messageOf(event, source))
    transport.deliver(messageOf(event, '/a'))
    finish.open()
    await turns(30)
    expect(calls).toEqual(['1', '1', '1', '1'])
    await stopped(bus, clock)
    expect(transport.acked.flat().length).toBe(4)
  })

  it('writes only redacted errors to dead letters and logs', async () => {
    const log = recordingLogger()
    const { transport, deliver, clock, bus } = await world(
      () => {
        throw new Error('card 4111 refused')
      },
      { logger: log, redact: (text) => text.replace(/\d{4}/, '####') },
    )
    deliver()
    await clock.advance(10_000)
    expect(transport.deadLettered[0]?.reason.error).toBe('work: Error: card #### refused')
    expect(JSON.stringify(log.lines)).not.toContain('4111')
    await stopped(bus, clock)
  })

  it('leaves no timer behind when a stop interrupts the retries of deadLetter', async () => {
    const { transport, deliver, clock, bus } = await world(() => {})
    transport.onDeadLetter = async () => {
      throw new Error('down')
    }
    deliver({}, 99)
    await clock.advance(10_000)
    await stopped(bus, clock)
  })

  it('repeats deadLetter until the broker accepts it', async () => {
    const { transport, deliver, clock, bus } = await world(() => {}, {})
    let isDown = true
    transport.onDeadLetter = async () => {
      if (isDown) throw new Error('down')
    }
    deliver({}, 99)
    await clock.advance(60_000)
    expect(transport.deadLettered).toEqual([])
    isDown = false
    await clock.advance(5_000)
    expect(transport.deadLettered.length).toBe(1)
    await stopped(bus, clock)
  })

  it('dead-letters a message at once when its definition cannot decode it', async () => {
    const Numbered = defineEvent('numbered', { schema: z.number() })
    const { transport, deliver, calls, clock, bus } = await world(() => {}, { events: [Numbered] })
    deliver({ eventType: 'numbered', payload: 'secret' })
    deliver({ eventType: 'numbered', payload: 5 })
    await turns(20)
    expect(calls.length).toBe(1)
    expect(transport.deadLettered).toMatchObject([{ reason: { handlers: [], attempts: 0 } }])
    expect(JSON.stringify(transport.deadLettered.map(({ reason }) => reason))).not.toContain('secret')
    await stopped(bus, clock)
  })

  it('extends the leases of unsettled messages three times per takeoverMs', async () => {
    const finish = gate()
    const { transport, deliver, clock, bus } = await world(() => finish.opened, { takeoverMs: 3_000 })
    const message = deliver()
    await clock.advance(3_000)
    expect(transport.extended).toEqual([[message], [message], [message]])
    finish.open()
    await turns(20)
    await clock.advance(3_000)
    expect(transport.extended.length).toBe(3)
    await stopped(bus, clock)
  })

  it('stops extending the acknowledgement deadline of messages of types without a handler', async () => {
    const transport = new PaperTransport()
    const clock = new VirtualClock()
    const bus = new BrokerBus(transport, readBusOptions({ ...OPTIONS, clock, takeoverMs: 3_000 }))
    const finish = gate()
    bus.subscribe('order.placed', { name: 'work', handle: () => finish.opened })
    await bus.start()
    const deliver = (init: EnvelopeInit) =>
      transport.deliver(messageOf(EventEnvelope.create(init), undefined))
    const others = [
      deliver({ eventType: 'order.paid' }),
      deliver({ eventType: 'order.paid', orderingKey: 'k' }),
      deliver({ eventType: 'order.placed.late' }),
    ]
    const handled = deliver({ eventType: 'order.placed', orderingKey: 'k' })
    await turns(20)
    expect(transport.acked.flat()).toEqual(others)
    await clock.advance(3_000)
    expect(transport.extended).toEqual([[handled], [handled], [handled]])
    finish.open()
    await stopped(bus, clock)
    expect(transport.released).toEqual([])
  })

  it('stops extending the acknowledgement deadline of messages that were dead-lettered', async () => {
    const Numbered = defineEvent('numbered', { schema: z.number() })
    const { transport, deliver, clock, bus } = await world(
      () => {
        throw new Error('no')
      },
      { events: [Numbered], takeoverMs: 3_000 },
    )
    deliver({ eventType: 'numbered', payload: 'not a number' })
    deliver({}, 99)
    deliver()
    await clock.advance(10_000)
    expect(transport.deadLettered).toHaveLength(3)
    transport.extended.length = 0
    await clock.advance(10_000)
    expect(transport.extended).toEqual([])
    await stopped(bus, clock)
  })

  it('releases waiting messages and messages with a slow handler at a stop', async () => {
    const never = gate()
    const { transport, deliver, calls, clock, bus } = await world(() => never.opened, {
      concurrency: 1,
      drainTimeoutMs: 500,
    })
    const messages = [deliver(), deliver(), deliver()]
    await turns(20)
    const stopping = bus.stop()
    await clock.advance(499)
    expect(transport.released).toEqual([])
    await clock.advance(1)
    await stopping
    expect(new Set(transport.released)).toEqual(new Set(messages))
    never.open()
    await turns(20)
    expect(calls.length).toBe(1)
    expect(transport.acked).toEqual([])
  })

  it('releases messages that were not started at a stop, even if a running handler ends in time', async () => {
    const finish = gate()
    const { transport, deliver, calls, clock, bus } = await world(() => finish.opened, { concurrency: 1 })
    const messages = [deliver({ eventId: 'a' }), deliver({ eventId: 'b' }), deliver({ orderingKey: 'k' })]
    await turns(20)
    const stopping = bus.stop()
    await turns(20)
    finish.open()
    await clock.advance(0)
    await stopping
    expect(calls).toEqual(['a'])
    expect(transport.acked).toEqual([[messages[0]]])
    expect(new Set(transport.released)).toEqual(new Set(messages.slice(1)))
  })

  it.each([
    ['handles messages that arrive before consume has resolved', false, ['early']],
    ['does not start messages whose lease was lost before consume has resolved', true, []],
  ])('%s', async (_title, isLost, expected) => {
    const transport = new PaperTransport()
    const consume = transport.consume.bind(transport)
    transport.consume = async (options) => {
      const consumption = await consume(options)
      const message = transport.deliver(messageOf(EventEnvelope.create({ eventType: 'early' }), undefined))
      if (isLost) options.onLeaseLost([message])
      return consumption
    }
    const bus = new BrokerBus(transport, readBusOptions(OPTIONS))
    const seen: string[] = []
    bus.subscribe('*', { name: 'work', handle: (event) => void seen.push(event.eventType) })
    await bus.start()
    await turns(20)
    expect(seen).toEqual(expected)
    await bus.stop()
  })
})
