import * as api from '@opentelemetry/api'
import { beforeEach, describe, expect, it } from 'vitest'
import { PaperTransport } from '../../test/support/paper-transport.js'
import {
  activeSpanId,
  idOf,
  inSpan,
  linksOf,
  parentOf,
  recordSpans,
  traceOf,
  treeOf,
} from '../../test/support/spans.js'
import { gate, turns } from '../../test/support/until.js'
import { BrokerBus } from '../bus/broker-bus.js'
import { readBusOptions } from '../bus/settings.js'
import { fixedDelay, RetryAfter } from '../core/index.js'
import { exactlyOnce, idempotent, processedEvents } from '../inbox/index.js'
import { createTestOutbox, InMemoryEventBus, type TestOutboxOptions } from '../testing/index.js'
import { silentLogger } from './logger.js'
import { type OtelApi, otelTracer } from './otel.js'
import type { Span, Tracer } from './tracing.js'

const spans = recordSpans()
const tracer = otelTracer(api)

function newOutbox(options: TestOutboxOptions = {}) {
  return createTestOutbox({ tracer, retry: { policy: fixedDelay(0) }, ...options })
}

beforeEach(() => spans.clear())

describe('spans', () => {
  it('are one for publishAll, below which all its handlers hang', async () => {
    const outbox = newOutbox()
    outbox.on('a', 'one', () => {})
    outbox.on('a', 'two', () => {})
    outbox.on('b', 'one', () => {})
    await outbox.transaction((tx) => tx.publishAll([{ type: 'a' }, { type: 'b' }]))
    await outbox.drain()
    expect(treeOf(spans.all())).toEqual(['publish', ...['a', 'a', 'b'].map((type) => `  process ${type}`)])
    expect(spans.only('publish').attributes).toEqual({
      'messaging.system': 'aftercommit',
      'messaging.operation.name': 'publish',
      'messaging.operation.type': 'send',
      'messaging.batch.message_count': 2,
    })
  })

  it('are none where nothing is published', async () => {
    const outbox = newOutbox()
    await outbox.transaction((tx) => tx.publishAll([]))
    await expect(outbox.transaction((tx) => tx.publish({ type: '' }))).rejects.toThrow()
    expect(spans.all()).toEqual([])
  })

  it('tell that publishing failed', async () => {
    const outbox = newOutbox()
    const twice = [1, 2].map(() => ({ type: 'a', eventId: 'same' }))
    await expect(outbox.transaction((tx) => tx.publishAll(twice))).rejects.toThrow()
    expect(spans.only('publish a').attributes['error.type']).toBe('DuplicateEventError')
  })

  it('are one for each attempt, with what went wrong as far as redact lets it through', async () => {
    const redact = (text: string) => text.replace('4111', '[card]')
    const outbox = newOutbox({ redact })
    let calls = 0
    outbox.on('order', 'charge', async () => {
      if (++calls === 1) throw new TypeError(`card 4111 ${'x'.repeat(1_000)}`)
      if (calls === 2) throw new RetryAfter(0)
    })
    await outbox.transaction((tx) => tx.publish({ type: 'order' }))
    await outbox.drain()
    const all = spans.named('process order')
    const outcomes = all.map(({ attributes, status }) => [
      attributes['aftercommit.attempt'],
      attributes['error.type'],
      status.code,
    ])
    const { ERROR, UNSET } = api.SpanStatusCode
    expect(outcomes).toEqual([
      [1, 'TypeError', ERROR],
      [2, 'RetryAfter', ERROR],
      [2, undefined, UNSET],
    ])
    expect(all[0]?.status.message).toMatch(/^card \[card\] x+$/)
    expect(all[0]?.status.message).toHaveLength(500)
    expect(all.flatMap((span) => span.events)).toEqual([])
  })

  it.each(['h', 'batch'])(
    'tell of a timeout when it is over, also of a handler that hangs: %s',
    async (kind) => {
      const outbox = newOutbox({ retry: { maxAttempts: 1 } })
      const end = gate()
      if (kind === 'h') outbox.on('slow', 'hangs', () => end.opened, { timeoutMs: 20 })
      else outbox.onBatch('slow', 'hangs', { size: 2, timeoutMs: 20 }, () => end.opened)
      await outbox.transaction((tx) => tx.publish({ type: 'slow' }))
      const draining = outbox.drain()
      await outbox.clock.advance(60)
      await draining
      expect(spans.only('process slow')).toMatchObject({
        attributes: { 'error.type': 'HandlerTimeoutError' },
        status: { code: api.SpanStatusCode.ERROR },
      })
      end.open()
      await turns(5)
      expect(spans.named('process slow')).toHaveLength(1)
    },
  )

  it('are one with links for a batch, which has a trace of its own', async () => {
    const outbox = newOutbox({ retry: { maxAttempts: 1 } })
    outbox.onBatch('row', 'index', { size: 3 }, (events) =>
      events.map((event) => (event.eventId === 'r-2' ? new RangeError('no row') : null)),
    )
    const ids = ['r-1', 'r-2', 'r-3']
    for (const eventId of ids) await outbox.transaction((tx) => tx.publish({ type: 'row', eventId }))
    await outbox.drain()
    const batch = spans.only('process row')
    const published = spans.named('publish row')
    expect(linksOf(batch).sort()).toEqual(published.map(idOf).sort())
    expect(batch.links.map((link) => link.attributes?.['messaging.message.id']).sort()).toEqual(ids)
    expect(new Set([batch, ...published].map(traceOf)).size).toBe(4)
    expect(parentOf(batch)).toBeUndefined()
    expect(batch.attributes).toMatchObject({
      'messaging.batch.message_count': 3,
      'messaging.consumer.group.name': 'index',
      'error.type': 'RangeError',
    })
    expect(batch.status.message).toBe('1 of 3 events failed, the first: no row')
  })

  it.each([
    ['a batch without a failure', 3, [] as string[], [api.SpanStatusCode.UNSET, undefined]],
    ['a batch of one that fails', 1, ['r-1'], [api.SpanStatusCode.ERROR, 'no row r-1']],
    [
      'a batch with two failures',
      3,
      ['r-2', 'r-3'],
      [api.SpanStatusCode.ERROR, '2 of 3 events failed, the first: no row r-2'],
    ],
  ])('have the status of %s', async (_, size, failing, status) => {
    const outbox = newOutbox({ retry: { maxAttempts: 1 } })
    outbox.onBatch('row', 'index', { size: 3 }, (events) =>
      events.map(({ eventId }) => (failing.includes(eventId) ? new RangeError(`no row ${eventId}`) : null)),
    )
    const events = Array.from({ length: size }, (_, n) => ({ type: 'row', eventId: `r-${n + 1}` }))
    await outbox.transaction((tx) => tx.publishAll(events))
    await outbox.drain()
    const batch = spans.only('process row')
    expect([batch.status.code, batch.status.message]).toEqual(status)
  })

  it('hang below the event for a batch of one', async () => {
    const outbox = newOutbox()
    outbox.onBatch('row', 'index', { size: 3 }, () => {})
    await outbox.transaction((tx) => tx.publish({ type: 'row' }))
    await outbox.drain()
    expect(treeOf(spans.all())).toEqual(['publish row', '  process row'])
  })

  it('hold what exactlyOnce and idempotent do, and what is published there', async () => {
    const outbox = newOutbox()
    const inside: (string | undefined)[] = []
    const book = exactlyOnce(async (_event, { tx }) => {
      inside.push(activeSpanId())
      await tx.publish({ type: 'booked' })
    }, outbox)
    outbox.on('order', 'book', book)
    const tell = idempotent(() => void inside.push(activeSpanId()), processedEvents(outbox))
    outbox.on('booked', 'tell', tell)
    await outbox.transaction((tx) => tx.publish({ type: 'order' }))
    await outbox.drain()
    expect(inside).toEqual(['process order', 'process booked'].map((name) => idOf(spans.only(name))))
    const tree = ['publish order', '  process order', '    publish booked', '      process booked']
    expect(treeOf(spans.all())).toEqual(tree)
  })

  it('of a relay link to the events it sends, and tell what the broker refuses', async () => {
    const outbox = newOutbox({ retry: { maxAttempts: 1 } })
    const bus = new InMemoryEventBus()
    outbox.relay(bus, { name: 'to-bus', events: ['ok', 'bad'] })
    bus.subscribe('bad', {
      name: 'refuses',
      handle: () => {
        throw new RangeError('not this one')
      },
    })
    await outbox.transaction((tx) => tx.publishAll([{ type: 'ok' }, { type: 'ok' }]))
    await outbox.drain()
    await outbox.transaction((tx) => tx.publish({ type: 'bad' }))
    await outbox.drain()
    const sent = spans.only('relay ok')
    const from = idOf(spans.only('publish ok'))
    expect([linksOf(sent), sent.kind, parentOf(sent)]).toEqual([[from, from], api.SpanKind.CLIENT, undefined])
    expect(sent.attributes).toMatchObject({
      'messaging.operation.name': 'relay',
      'messaging.operation.type': 'send',
      'messaging.batch.message_count': 2,
      'aftercommit.handler': 'to-bus',
    })
    expect(spans.only('relay bad').status.code).toBe(api.SpanStatusCode.ERROR)
    expect(parentOf(spans.only('relay bad'))).toBe(idOf(spans.only('publish bad')))
    expect(spans.all().filter((span) => span.name.startsWith('process'))).toEqual([])
  })

  it('of a relay travel with what carries no context', async () => {
    const untraced = createTestOutbox()
    const outbox = newOutbox({ store: untraced.store, clock: untraced.clock })
    const bus = new InMemoryEventBus()
    outbox.relay(bus, { events: ['quiet'] })
    await untraced.transaction((tx) => tx.publish({ type: 'quiet' }))
    await outbox.drain()
    const sent = spans.only('relay quiet')
    expect(bus.publishedEvents()[0]?.metadata.traceparent).toBe(`00-${traceOf(sent)}-${idOf(sent)}-01`)
    expect(sent.kind).toBe(api.SpanKind.PRODUCER)
  })

  it('are stored although they are not sampled, so that nobody below samples either', async () => {
    const outbox = newOutbox()
    const parent = { traceId: 'a'.repeat(32), spanId: 'b'.repeat(16), traceFlags: 0 }
    const context = api.trace.setSpan(api.ROOT_CONTEXT, api.trace.wrapSpanContext(parent))
    await api.context.with(context, () => outbox.transaction((tx) => tx.publish({ type: 'order' })))
    const [event] = await outbox.published()
    expect(event?.metadata.traceparent).toMatch(/^00-a{32}-[\da-f]{16}-00$/)
    expect(spans.all()).toEqual([])
  })

  it('are nothing without an SDK: no context is made up', async () => {
    const noSdk = { ...api, trace: Object.assign(Object.create(api.trace), { getTracer: () => NOOP }) }
    const outbox = newOutbox({ tracer: otelTracer(noSdk) })
    const handled: string[] = []
    outbox.on('order', 'h', (event) => void handled.push(event.eventId))
    await outbox.transaction((tx) => tx.publish({ type: 'order', eventId: 'e' }))
    await outbox.drain()
    expect(handled).toEqual(['e'])
    expect((await outbox.published())[0]?.metadata).toEqual({})
  })

  it('need the whole API, and say so', () => {
    const { trace, context } = api
    for (const part of [undefined, null, {}, { trace }, { trace, context }, 'api']) {
      expect(() => otelTracer(part as unknown as OtelApi)).toThrow(/import \* as api/)
    }
    expect(() => createTestOutbox({ tracer: {} as Tracer })).toThrow(/tracer/)
  })
})

/** What OpenTelemetry hands out while nobody has set it up. */
const NOOP = new api.ProxyTracerProvider().getTracer('nobody')

describe('spans of a bus', () => {
  async function newBus(options: { tracer?: Tracer } = { tracer }) {
    const transport = new PaperTransport()
    const retry = { maxAttempts: 2, policy: fixedDelay(0) }
    const settings = readBusOptions({ group: 'billing', logger: silentLogger, retry, ...options })
    return { transport, bus: new BrokerBus(transport, settings) }
  }

  it('go from the publisher over the message to each handler and what it publishes', async () => {
    const { transport, bus } = await newBus()
    let calls = 0
    bus.subscribe('order', {
      name: 'charge',
      handle: async () => {
        if (++calls === 1) throw new TypeError('no card')
        await bus.publish({ type: 'payment' })
      },
    })
    await bus.start()
    await inSpan('request', () => bus.publish({ type: 'order', eventId: 'e-1' }))
    transport.deliver(transport.sent[0] as (typeof transport.sent)[0])
    await expect.poll(() => transport.acked.length).toBe(1)
    await bus.stop()
    expect(treeOf(spans.all())).toEqual([
      'request',
      '  publish order',
      '    process order',
      '    process order',
      '      publish payment',
    ])
    const [failed, succeeded] = spans.named('process order')
    expect(failed?.attributes).toMatchObject({ 'error.type': 'TypeError', 'aftercommit.attempt': 1 })
    expect(succeeded?.attributes).toEqual({
      'messaging.system': 'aftercommit',
      'messaging.operation.name': 'process',
      'messaging.operation.type': 'process',
      'messaging.destination.name': 'order',
      'messaging.message.id': 'e-1',
      'messaging.message.conversation_id': 'e-1',
      'messaging.consumer.group.name': 'billing',
      'aftercommit.handler': 'charge',
      'aftercommit.attempt': 2,
      'aftercommit.broker': 'Paper',
    })
    expect(spans.only('publish payment').attributes).toMatchObject({
      'messaging.message.conversation_id': 'e-1',
      'aftercommit.causation_id': 'e-1',
    })
  })

  it('are none without a tracer', async () => {
    const { transport, bus } = await newBus({})
    await inSpan('request', () => bus.publish({ type: 'order' }))
    expect(Object.keys(transport.sent[0]?.attributes ?? {})).not.toContain('traceparent')
    expect(treeOf(spans.all())).toEqual(['request'])
  })
})

const no = (): never => {
  throw new Error('no tracing today')
}

/** Each of them breaks another promise of the port. */
const HOSTILE: Readonly<Record<string, Tracer>> = {
  'throws at the start': { start: no },
  'throws in run': { start: () => ({ context: undefined, run: no, end: no }) as Span },
  'calls twice, and throws': {
    start: () => ({
      context: { traceparent: 'x' },
      run: (work) => {
        work()
        work()
        return no()
      },
      end: no,
    }),
  },
}

describe.each(Object.entries(HOSTILE))('a tracer that %s', (_title, hostile) => {
  it('changes nothing of what an outbox does', async () => {
    const outbox = newOutbox({ tracer: hostile, retry: { maxAttempts: 2, policy: fixedDelay(0) } })
    const seen: string[] = []
    outbox.on('order', 'charge', async (event, { attempt }) => {
      seen.push(`charge ${attempt}`)
      if (attempt === 1) throw new Error('once')
      await outbox.transaction((tx) => tx.publishAll([{ type: 'row' }, { type: 'row' }]))
      expect(event.metadata).toEqual({})
    })
    outbox.onBatch('row', 'index', { size: 2 }, (events) => void seen.push(`index ${events.length}`))
    const bus = new InMemoryEventBus()
    outbox.relay(bus, { events: ['order'] })
    await outbox.transaction((tx) => tx.publish({ type: 'order' }))
    await outbox.drain()
    expect(seen).toEqual(['charge 1', 'charge 2', 'index 2'])
    expect(bus.eventCount()).toBe(1)
    expect(await outbox.stats()).toMatchObject({ done: 3, failed: 1, dead: 0, pending: 0 })
  })

  it('changes nothing of what a bus does', async () => {
    const transport = new PaperTransport()
    const settings = readBusOptions({ group: 'g', logger: silentLogger, tracer: hostile })
    const bus = new BrokerBus(transport, settings)
    let calls = 0
    bus.subscribe('order', { name: 'h', handle: () => void calls++ })
    await bus.start()
    await bus.publish({ type: 'order' })
    expect(transport.sent).toHaveLength(1)
    transport.deliver(transport.sent[0] as (typeof transport.sent)[0])
    await expect.poll(() => transport.acked.length).toBe(1)
    await bus.stop()
    expect(calls).toBe(1)
  })
})
