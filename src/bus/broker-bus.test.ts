import { describe, expect, it } from 'vitest'
import { PaperTransport } from '../../test/support/paper-transport.js'
import { EventEnvelope } from '../core/envelope.js'
import { AftercommitError, BrokerUnavailableError, NotConfirmedError } from '../core/errors.js'
import type { StoredEvent } from '../core/stored-event.js'
import { silentLogger } from '../observe/logger.js'
import { VirtualClock } from '../testing/virtual-clock.js'
import { BrokerBus } from './broker-bus.js'
import { type BusOptions, readBusOptions } from './settings.js'

function world(options: BusOptions = {}) {
  const transport = new PaperTransport()
  const clock = new VirtualClock()
  const bus = new BrokerBus(transport, readBusOptions({ logger: silentLogger, clock, ...options }))
  return { transport, clock, bus }
}

/** An event that a program has stored with plain SQL. */
function stored(eventId: string, fields: Record<string, unknown>): EventEnvelope {
  return EventEnvelope.fromStored({
    ...{ eventId, eventType: 'order.placed', aggregateType: 'order', aggregateId: null, tenantId: null },
    ...{ orderingKey: null, version: 1, payloadText: '{}', payloadBytes: null, payloadSize: 2 },
    ...{ headers: null, metadata: null, occurredAtMs: 0 },
    ...fields,
  } as StoredEvent)
}

const event = (eventId: string) => EventEnvelope.create({ eventType: 'order.placed', eventId })

describe('BrokerBus', () => {
  it('answers send with a result per event', async () => {
    const { transport, bus } = world()
    const refusal = new Error('too large')
    transport.answer = ({ id }) => (id === 'b' ? refusal : null)
    expect(await bus.send([event('a'), event('b'), event('c')])).toEqual([null, refusal, null])
    const failed = await bus.publishAll([event('a'), event('b')]).catch((error) => error)
    expect(failed).toBeInstanceOf(NotConfirmedError)
    expect(failed).toMatchObject({ code: 'NOT_CONFIRMED', eventIds: ['b'], errors: [refusal] })
  })

  it('answers with BrokerUnavailableError for an error that isUnavailable recognizes', async () => {
    const { transport, bus } = world()
    transport.answer = () => new Error('connection lost')
    const [answer] = await bus.send([event('a')])
    expect(answer).toBeInstanceOf(BrokerUnavailableError)
  })

  it('calls check to decide whether an unknown error is an outage', async () => {
    const { transport, bus } = world()
    transport.answer = () => new Error('something')
    expect((await bus.send([event('a')]))[0]).not.toBeInstanceOf(BrokerUnavailableError)
    transport.isDown = true
    expect((await bus.send([event('a')]))[0]).toBeInstanceOf(BrokerUnavailableError)
  })

  it('fails all events when Transport.send rejects', async () => {
    const { transport, bus } = world()
    transport.send = async () => {
      throw new Error('connection lost')
    }
    const answers = await bus.send([event('a'), event('b')])
    expect(answers.every((answer) => answer instanceof BrokerUnavailableError)).toBe(true)
  })

  it('fails only the event that cannot be converted to a message', async () => {
    const { transport, bus } = world()
    const bad = {
      'a user id that is a number': { metadata: { userId: 5 } },
      'a correlation id that is an object': { metadata: { correlationId: { a: 1 } } },
      'an infinite time': { occurredAtMs: Number.NEGATIVE_INFINITY },
      'no time': { occurredAtMs: Number.NaN },
      'an ordering key that is a number': { orderingKey: 7 },
      'a type that is a number': { eventType: 5 },
    }
    for (const [name, fields] of Object.entries(bad)) {
      transport.sent.length = 0
      const answers = await bus.send([event('a'), stored('bad', fields), event('b')])
      expect(answers, name).toEqual([null, expect.objectContaining({ code: 'INVALID_EVENT' }), null])
      expect(
        transport.sent.map(({ id }) => id),
        name,
      ).toEqual(['a', 'b'])
    }
  })

  it('does not call the broker when no event can be converted', async () => {
    const { transport, bus } = world()
    transport.isDown = true
    transport.send = async () => {
      throw new Error('not called')
    }
    const answers = await bus.send([stored('a', { metadata: { userId: 5 } })])
    expect(answers).toEqual([expect.objectContaining({ code: 'INVALID_EVENT' })])
  })

  it('finds the message that makes a client fail, and sends the others once and in order', async () => {
    const { transport, bus } = world()
    const confirmed: string[] = []
    transport.send = async (messages) => {
      if (messages.some(({ id }) => id === 'e13')) throw new TypeError('cannot encode')
      confirmed.push(...messages.map(({ id }) => id))
      return messages.map(() => null)
    }
    const ids = Array.from({ length: 40 }, (_, n) => `e${n}`)
    const answers = await bus.send(ids.map(event))
    expect(answers.flatMap((answer, at) => (answer === null ? [] : [ids[at]]))).toEqual(['e13'])
    expect(answers[13]).toMatchObject({ message: 'cannot encode' })
    expect(confirmed).toEqual(ids.filter((id) => id !== 'e13'))
  })

  it('does not send the rest of a batch after an outage has started', async () => {
    const { transport, bus } = world()
    const sends: number[] = []
    transport.send = async (messages) => {
      sends.push(messages.length)
      throw new Error(sends.length < 2 ? 'something' : 'connection lost')
    }
    const answers = await bus.send(['a', 'b', 'c', 'd'].map(event))
    expect(answers.every((answer) => answer instanceof BrokerUnavailableError)).toBe(true)
    expect(sends).toEqual([4, 2])
  })

  it('fails with BrokerUnavailableError when no confirmation arrives in time', async () => {
    const { transport, clock, bus } = world({ confirmTimeoutMs: 500 })
    transport.send = () => new Promise(() => {})
    const sending = bus.send([event('a')])
    await clock.advance(500)
    expect((await sending)[0]).toMatchObject({ code: 'BROKER_UNAVAILABLE' })
    expect(clock.timerCount).toBe(0)
  })

  it('stops sending further chunks after an outage', async () => {
    const { transport, bus } = world()
    transport.answer = () => new Error('connection lost')
    const answers = await bus.send(Array.from({ length: 2_500 }, (_, n) => event(`e${n}`)))
    expect(answers.length).toBe(2_500)
    expect(transport.sent.length).toBe(1_000)
  })

  it('rejects invalid settings', () => {
    const bad: [object, RegExp][] = [
      [{ groop: 'a' }, /a bus has no such setting\. Did you mean group\?/],
      [{ group: 'a b' }, /group/],
      [{ group: '' }, /group/],
      [{ concurrency: 0 }, /concurrency/],
      [{ retry: { maxAttempts: 0 } }, /maxAttempts/],
      [{ retry: { attempts: 1 } }, /retry\.attempts: retry has no such setting/],
      [{ retry: { policy: {} } }, /policy/],
      [{ logger: {} }, /logger/],
      [{ takeoverMs: 1 }, /takeoverMs/],
      [{ confirmTimeoutMs: Number.NaN }, /confirmTimeoutMs/],
    ]
    for (const [options, message] of bad)
      expect(() => readBusOptions(options), String(message)).toThrow(message)
  })

  it('rejects a start while the broker is down, and can start later', async () => {
    const { transport, bus } = world({ group: 'billing' })
    bus.subscribe('*', { name: 'work', handle: () => {} })
    transport.isDown = true
    await expect(bus.start()).rejects.toThrow('down')
    transport.isDown = false
    await bus.start()
    await bus.stop()
  })

  it('subscribes to none of several types if one of them is refused', () => {
    const bus = new BrokerBus(new PaperTransport(), readBusOptions({ group: 'work' }, []))
    const handler = { name: 'work', handle: () => {} }
    for (const types of [
      ['a', 'a'],
      ['a', '*.b'],
      ['a', 'b', '*'],
    ]) {
      expect(() => bus.subscribeAll(types, handler)).toThrow(AftercommitError)
    }
    bus.subscribeAll(['a', 'b'], handler)
  })

  it('can be stopped while its start is pending', async () => {
    const { transport, clock, bus } = world({ group: 'billing' })
    bus.subscribe('*', { name: 'work', handle: () => {} })
    transport.consume = () => new Promise(() => {})
    const starting = bus.start()
    expect(() => bus.subscribe('late', { name: 'late', handle: () => {} })).toThrow(/before start/)
    const refused = expect(starting).rejects.toMatchObject({ code: 'STOPPED' })
    const stopping = bus.stop()
    await clock.advance(2_000)
    await stopping
    await refused
    expect(clock.timerCount).toBe(0)
  })
})
