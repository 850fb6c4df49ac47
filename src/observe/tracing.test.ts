import { describe, expect, it } from 'vitest'
import { notingTracer } from '../../test/support/spans.js'
import { EventEnvelope } from '../core/envelope.js'
import { type Span, type Tracer, traced, tracedEvent, unfailingTracer, withTrace } from './tracing.js'

const CONTEXT = { traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01' }
const event = EventEnvelope.create({ eventType: 'order.placed', metadata: { userId: 'secret-user' } })
const plan = { operation: 'process', events: [tracedEvent(event)], handler: 'h' } as const
const NO_REDACT = { redact: undefined }

describe('traced', () => {
  it('ends the span when the work has, and gives back what it gives', async () => {
    const tracer = notingTracer()
    expect(traced(tracer, plan, NO_REDACT, () => 7)).toBe(7)
    expect(tracer.spans).toEqual([{ plan, error: undefined, ends: 1 }])
    let finish = (_: string) => {}
    const result = traced(tracer, plan, NO_REDACT, () => new Promise<string>((done) => (finish = done)))
    expect(tracer.spans[1]?.ends).toBe(0)
    finish('later')
    expect(await result).toBe('later')
    expect(tracer.spans[1]).toEqual({ plan, error: undefined, ends: 1 })
  })

  it('hands on what is thrown, and tells the span of it', async () => {
    const tracer = notingTracer()
    const broken = new TypeError('broken')
    const thrower = () => {
      throw broken
    }
    expect(() => traced(tracer, plan, NO_REDACT, thrower)).toThrow(broken)
    await expect(traced(tracer, plan, NO_REDACT, async () => thrower())).rejects.toBe(broken)
    const error = { name: 'TypeError', message: 'broken' }
    expect(tracer.spans).toEqual([
      { plan, error, ends: 1 },
      { plan, error, ends: 1 },
    ])
  })

  it('shows at most 500 characters of an error, and only what redact lets through', async () => {
    const tracer = notingTracer()
    const redact = (text: string) => text.replaceAll('4111', '[card]')
    const fail = async () => {
      throw new Error(`card 4111 ${'x'.repeat(1_000)}`)
    }
    await traced(tracer, plan, { redact }, fail).catch(() => {})
    const { message } = tracer.spans[0]?.error ?? { message: '' }
    expect(message).toMatch(/^card \[card\] x+$/)
    expect(message).toHaveLength(500)
  })

  it('asks a lazy thenable once', async () => {
    let asked = 0
    const lazy = {
      // biome-ignore lint/suspicious/noThenProperty: query builders are such things
      then: (done: (value: number) => void) => {
        asked++
        done(asked)
      },
    }
    const result = traced<unknown>(notingTracer(), plan, NO_REDACT, () => lazy)
    expect([await result, await result, asked]).toEqual([1, 1, 1])
  })

  it('ends with the reason when the signal fires, and not once more with the work', async () => {
    const tracer = notingTracer()
    const unfailing = unfailingTracer(tracer)
    const late = new AbortController()
    let finish = () => {}
    const options = { redact: undefined, until: late.signal }
    const result = traced(unfailing, plan, options, () => new Promise<void>((done) => (finish = done)))
    late.abort(new RangeError('too late'))
    expect(tracer.spans[0]).toMatchObject({ error: { name: 'RangeError', message: 'too late' }, ends: 1 })
    finish()
    await result
    expect(tracer.spans[0]).toMatchObject({ error: { name: 'RangeError' }, ends: 1 })
  })
})

describe('what a span knows of an event', () => {
  it('is no payload, no header and no user id', () => {
    const rich = EventEnvelope.create({
      eventType: 'order.placed',
      payload: { card: '4111' },
      headers: { authorization: 'bearer' },
      metadata: { userId: 'u-1', correlationId: 'c-1', causationId: 'e-0', ...CONTEXT },
    })
    expect(tracedEvent(rich)).toEqual({
      eventId: rich.eventId,
      eventType: 'order.placed',
      correlationId: 'c-1',
      causationId: 'e-0',
      from: { ...CONTEXT, tracestate: undefined },
    })
  })

  it('is stored with the event unless it carries its own', () => {
    expect(withTrace(event, CONTEXT).metadata).toEqual({ userId: 'secret-user', ...CONTEXT })
    expect(withTrace(event, undefined)).toBe(event)
    const own = event.withMetadata({ traceparent: 'own' })
    expect(withTrace(own, CONTEXT)).toBe(own)
  })
})

const no = () => {
  throw new Error('no tracing today')
}
const span: Span = { context: undefined, run: (work) => work(), end: () => {} }

describe('a tracer that misbehaves changes nothing', () => {
  it.each<[string, () => unknown]>([
    ['start throws', no],
    ['start gives nothing', () => undefined],
    ['start gives nonsense', () => 'a span'],
    ['run throws at once', () => ({ ...span, run: no })],
    [
      'run throws afterwards',
      () => ({
        ...span,
        run: (work: () => unknown) => {
          work()
          no()
        },
      }),
    ],
    ['run calls nothing', () => ({ ...span, run: () => 'something else' })],
    ['run calls twice', () => ({ ...span, run: (work: () => unknown) => [work(), work()] })],
    ['end throws', () => ({ ...span, end: no })],
    ['the context cannot be read', () => Object.defineProperty({ ...span }, 'context', { get: no })],
  ])('%s', async (_title, start) => {
    const tracer = unfailingTracer({ start } as Tracer)
    let calls = 0
    const work = () => {
      calls++
      return 'result'
    }
    expect(traced(tracer, plan, NO_REDACT, work)).toBe('result')
    expect(await traced(tracer, plan, NO_REDACT, async () => work())).toBe('result')
    const broken = new Error('broken')
    const failing = () => {
      calls++
      throw broken
    }
    expect(() => traced(tracer, plan, NO_REDACT, failing)).toThrow(broken)
    await expect(traced(tracer, plan, NO_REDACT, async () => failing())).rejects.toBe(broken)
    expect(calls).toBe(4)
  })

  it.each([
    ['no text', 7],
    ['something else', 'x'.repeat(55)],
    ['a line too many', `${CONTEXT.traceparent}\n`],
    ['a megabyte', 'a'.repeat(1_000_000)],
  ])('a traceparent that is %s is not stored', (_title, traceparent) => {
    const tracer = unfailingTracer({
      start: () => ({ ...span, context: { traceparent: traceparent as string } }),
    })
    const stored = traced(tracer, plan, NO_REDACT, (context) => withTrace(event, context))
    expect(stored).toBe(event)
  })

  it('a tracestate that no event could carry is left out', () => {
    const tracer = unfailingTracer({
      start: () => ({ ...span, context: { ...CONTEXT, tracestate: 'a=\u0000' } }),
    })
    const stored = traced(tracer, plan, NO_REDACT, (context) => withTrace(event, context))
    expect(stored.metadata).toEqual({ userId: 'secret-user', ...CONTEXT })
  })
})
