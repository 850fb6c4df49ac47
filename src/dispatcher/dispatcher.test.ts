import { describe, expect, it } from 'vitest'
import { recordingLogger, recordingMetrics } from '../../test/support/recording.js'
import { fixedDelay, type RetryPolicy } from '../core/backoff.js'
import { EventCatalog } from '../core/catalog.js'
import { type EnvelopeInit, EventEnvelope } from '../core/envelope.js'
import { AggregateHandlerError } from '../core/errors.js'
import type { Settlement } from '../store.js'
import { event, gate } from '../testing/store-conformance/fixtures.js'
import { VirtualClock } from '../testing/virtual-clock.js'
import { BoundedQueue } from './bounded-queue.js'
import { Delivery, type DeliveryInit } from './delivery.js'
import { Dispatcher, type DispatcherOptions } from './dispatcher.js'
import { InFlight } from './in-flight.js'
import { type HandlerFunction, type HandlerOptions, Routes } from './routing.js'
import { Settler } from './settler.js'

interface Setup
  extends Partial<Pick<DispatcherOptions, 'concurrency' | 'interceptors' | 'onUnroutable' | 'haltsKeys'>> {
  readonly maxAttempts?: number
  readonly policy?: RetryPolicy
  readonly createScope?: DispatcherOptions['createScope']
}

/** A dispatcher whose store writes down the outcomes, and forgets deliveries as the outbox does. */
function world(setup: Setup = {}) {
  const clock = new VirtualClock()
  const log = recordingLogger()
  const metrics = recordingMetrics()
  const inFlight = new InFlight()
  const routes = new Routes(new EventCatalog())
  const outcomes: Settlement[] = []
  const dropped: string[] = []
  const settler = new Settler({
    clock,
    logger: log,
    metrics: undefined,
    keepDone: true,
    store: {
      list: async () => [],
      async settleIfLeased(settlements) {
        outcomes.push(...settlements)
        return new Set(settlements.map((one) => one.eventId))
      },
    },
    onSettled: (delivery) => {
      if (delivery) inFlight.remove(delivery)
    },
  })
  const hotQueue = new BoundedQueue<Delivery>(1_000, 1e9)
  const coldQueue = new BoundedQueue<Delivery>(1_000, 1e9)
  let rooms = 0
  const dispatcher = new Dispatcher({
    instance: 'me',
    concurrency: setup.concurrency ?? 4,
    hot: hotQueue,
    cold: coldQueue,
    inFlight,
    routes,
    settler,
    retry: { maxAttempts: setup.maxAttempts ?? 10, policy: setup.policy ?? fixedDelay(100) },
    haltsKeys: setup.haltsKeys ?? false,
    onUnroutable: setup.onUnroutable ?? 'dead',
    interceptors: setup.interceptors ?? [],
    createScope: setup.createScope,
    clock,
    logger: log,
    redact: undefined,
    metrics,
    onDropped: (delivery) => {
      dropped.push(delivery.event.eventId)
      inFlight.remove(delivery)
    },
    onRoom: () => rooms++,
  })
  const on = (name: string, handle: HandlerFunction, options: HandlerOptions = {}) =>
    routes.add({
      name,
      handle,
      eventType: '*',
      aggregateType: null,
      exclusive: false,
      timeoutMs: options.timeoutMs ?? 0,
    })
  const hot = (...ids: string[]) => {
    for (const eventId of ids) {
      const one = delivery({ eventId }, { source: 'hot' })
      hotQueue.reserve(one.bytes)
      dispatcher.hot(one)
    }
  }
  const cold = (...deliveries: Delivery[]) => dispatcher.cold(deliveries)
  return {
    ...{ clock, log, metrics, inFlight, outcomes, dropped, dispatcher, on, hot, cold, coldQueue, hotQueue },
    rooms: () => rooms,
    /** Lets everything happen that needs no time but the settler's. */
    settle: () => clock.advance(5),
  }
}

function delivery(init: Partial<EnvelopeInit> = {}, more: Partial<DeliveryInit> = {}): Delivery {
  return new Delivery({
    event: event(init),
    token: 'me:1',
    leasedUntil: 30_000,
    attempts: 0,
    handledBy: [],
    source: 'cold',
    suspect: false,
    unroutable: false,
    ...more,
  })
}

const named = (eventId: string, more: Partial<DeliveryInit> = {}) => delivery({ eventId }, more)

function failing(message = 'broken'): () => never {
  return () => {
    throw new Error(message)
  }
}

describe('Dispatcher: queues', () => {
  it('takes two hot events for each cold one, and neither starves', async () => {
    const { dispatcher, on, hot, cold, settle } = world({ concurrency: 1 })
    const handled: string[] = []
    on('note', (one) => void handled.push(one.eventId))
    dispatcher.resume()
    cold(...['c1', 'c2', 'c3', 'c4'].map((id) => named(id)))
    hot('h1', 'h2', 'h3', 'h4', 'h5')
    await settle()
    expect(handled).toEqual(['h1', 'h2', 'c1', 'h3', 'h4', 'c2', 'h5', 'c3', 'c4'])
  })

  it('runs no more handlers at a time than it may, and each place is used again', async () => {
    const { dispatcher, on, cold, settle } = world({ concurrency: 3 })
    let running = 0
    let most = 0
    let handled = 0
    const gates = Array.from({ length: 10 }, gate)
    on('note', async () => {
      most = Math.max(most, ++running)
      await gates[handled++]?.opened
      running--
    })
    dispatcher.resume()
    cold(...gates.map((_, n) => named(String(n))))
    await settle()
    expect(running).toBe(3)
    gates[0]?.open()
    await settle()
    expect(handled).toBe(4)
    for (const one of gates) one.open()
    await settle()
    expect(handled).toBe(10)
    expect(most).toBe(3)
  })

  it('starts nothing before it is resumed', async () => {
    const { on, hot, settle, dispatcher } = world()
    const handled: string[] = []
    on('note', (one) => void handled.push(one.eventId))
    hot('a')
    await settle()
    expect(handled).toEqual([])
    dispatcher.resume()
    await settle()
    expect(handled).toEqual(['a'])
  })

  it('gives back what is claimed while it is paused, without an attempt', async () => {
    const { on, cold, settle, outcomes, inFlight } = world()
    on('note', () => {})
    cold(named('a'))
    await settle()
    expect(outcomes).toEqual([{ eventId: 'a', token: 'me:1', outcome: 'release', delayMs: 0 }])
    expect(inFlight.size).toBe(0)
  })

  it('returns what waits when it is paused, and lets what runs go on', async () => {
    const { on, cold, hot, settle, outcomes, dispatcher } = world({ concurrency: 1 })
    const run = gate()
    on('note', () => run.opened)
    dispatcher.resume()
    cold(named('running'), named('waiting'))
    await settle()
    hot('hot')
    expect(dispatcher.pause().map((one) => one.event.eventId)).toEqual(['hot', 'waiting'])
    run.open()
    await settle()
    expect(outcomes).toEqual([{ eventId: 'running', token: 'me:1', outcome: 'done' }])
  })

  it('puts off an event that it holds already', async () => {
    const { on, cold, settle, outcomes, dispatcher } = world()
    const run = gate()
    let calls = 0
    on('note', () => {
      calls++
      return run.opened
    })
    dispatcher.resume()
    cold(named('a', { token: 'me:1' }))
    await settle()
    cold(named('a', { token: 'me:2' }))
    await settle()
    expect(calls).toBe(1)
    expect(outcomes).toEqual([{ eventId: 'a', token: 'me:2', outcome: 'release', delayMs: 1_000 }])
    run.open()
    await settle()
    expect(outcomes.at(-1)).toEqual({ eventId: 'a', token: 'me:1', outcome: 'done' })
  })

  it('drops an event whose lease was over before it could start', async () => {
    const { on, cold, settle, dropped, dispatcher, clock, metrics, outcomes } = world({ concurrency: 1 })
    const first = gate()
    const handled: string[] = []
    on('note', async (one) => {
      handled.push(one.eventId)
      await first.opened
    })
    dispatcher.resume()
    const lost = named('lost')
    cold(named('first', { leasedUntil: 1e9 }), named('expired', { leasedUntil: 500 }), lost, named('last'))
    await settle()
    lost.lose(new Error('somebody else has it'))
    await clock.advance(500)
    first.open()
    await settle()
    expect(handled).toEqual(['first', 'last'])
    expect(dropped).toEqual(['expired', 'lost'])
    expect(outcomes.map((one) => one.eventId)).toEqual(['first', 'last'])
    expect(metrics.total('lease_lost')).toBe(2)
  })

  it('says that there is room when it takes a cold one, and not for a hot one', async () => {
    const { on, cold, hot, settle, dispatcher, rooms } = world()
    on('note', () => {})
    dispatcher.resume()
    hot('h')
    await settle()
    expect(rooms()).toBe(0)
    cold(named('c'))
    await settle()
    expect(rooms()).toBe(1)
  })
})

describe('Dispatcher: failures', () => {
  it('is done with an event that can never be read: dead, and the others go on', async () => {
    const { on, cold, settle, outcomes, dispatcher } = world()
    const handled: string[] = []
    on('note', (one) => void handled.push(one.eventId))
    const broken = EventEnvelope.fromStored({
      ...{ eventId: 'broken', eventType: 'order.placed', aggregateType: 'order', aggregateId: null },
      ...{ tenantId: null, orderingKey: null, version: 1, payloadText: '{"half":', payloadBytes: null },
      ...{ headers: null, metadata: null, occurredAtMs: 0, payloadSize: 8 },
    })
    dispatcher.resume()
    cold(new Delivery({ ...named('x'), event: broken }), named('next'))
    await settle()
    expect(handled).toEqual(['next'])
    expect(outcomes[0]).toMatchObject({ eventId: 'broken', outcome: 'dead', attempts: 1 })
    expect(outcomes[0]).toMatchObject({ error: expect.stringMatching(/^UndecodablePayloadError: /) })
  })

  it('declares an event dead whose processes died as often as it may be tried, without running it', async () => {
    const { on, cold, settle, outcomes, dispatcher } = world({ maxAttempts: 3 })
    let calls = 0
    on('note', () => void calls++)
    dispatcher.resume()
    cold(named('a', { attempts: 3 }))
    await settle()
    expect(calls).toBe(0)
    expect(outcomes[0]).toMatchObject({ outcome: 'dead', attempts: 0 })
    expect(outcomes[0]).toMatchObject({ error: expect.stringMatching(/^ProcessDiedError: /) })
  })

  it('retries after what the policy says of the attempts and the error', async () => {
    const asked: unknown[][] = []
    const policy = { delayMs: (...args: unknown[]) => asked.push(args) * 1_000 }
    const { on, cold, settle, outcomes, dispatcher } = world({ policy })
    on('note', failing())
    dispatcher.resume()
    cold(named('first'), named('fifth', { attempts: 4 }))
    await settle()
    expect(asked).toEqual([
      [1, expect.objectContaining({ message: 'broken' })],
      [5, expect.objectContaining({ message: 'broken' })],
    ])
    expect(outcomes).toMatchObject([
      { eventId: 'first', outcome: 'retry', delayMs: 1_000, attempts: 1, error: 'note: Error: broken' },
      { eventId: 'fifth', outcome: 'retry', delayMs: 2_000, attempts: 1 },
    ])
  })

  it.each([
    ['NaN', () => Number.NaN],
    ['less than nothing', () => -1],
    ['for ever', () => Number.POSITIVE_INFINITY],
    ['no number', () => 'soon' as unknown as number],
    ['an error', failing()],
  ])('waits a minute when the policy answers %s', async (_, delayMs) => {
    const { on, cold, settle, outcomes, dispatcher } = world({ policy: { delayMs } })
    on('note', failing())
    dispatcher.resume()
    cold(named('a'))
    await settle()
    expect(outcomes).toMatchObject([{ outcome: 'retry', delayMs: 60_000 }])
  })

  it('is dead at the last attempt', async () => {
    const { on, cold, settle, outcomes, dispatcher } = world({ maxAttempts: 3 })
    on('note', failing())
    dispatcher.resume()
    cold(named('second', { attempts: 1 }), named('third', { attempts: 2 }))
    await settle()
    expect(outcomes.map((one) => one.outcome)).toEqual(['retry', 'dead'])
  })

  it.each([
    ['nothing', undefined],
    ['null', null],
    ['text', 'oops'],
    ['an object without a prototype', Object.create(null)],
    ['an error with NUL bytes', new Error('a\0b')],
    [
      'an error that throws when it is read',
      {
        get message() {
          throw new Error('again')
        },
      },
    ],
  ])('survives a handler that throws %s', async (_, thrown) => {
    const { on, cold, settle, outcomes, dispatcher } = world()
    on('note', () => Promise.reject(thrown))
    dispatcher.resume()
    cold(named('a'))
    await settle()
    expect(outcomes).toMatchObject([{ outcome: 'retry', failures: [{ handler: 'note', instance: 'me' }] }])
    expect(JSON.stringify(outcomes)).not.toContain('\\u0000')
  })

  it('declares what nobody handles dead, or tries again when told to', async () => {
    for (const onUnroutable of ['dead', 'retry'] as const) {
      const { cold, settle, outcomes, dispatcher } = world({ onUnroutable })
      dispatcher.resume()
      cold(named('a', { unroutable: true }))
      await settle()
      expect(outcomes).toMatchObject([
        { outcome: onUnroutable, attempts: 1, error: expect.stringMatching(/^UnroutableEventError: /) },
      ])
    }
  })

  it('gives back, without an attempt, what it has no handler for', async () => {
    const { cold, settle, outcomes, dispatcher } = world()
    dispatcher.resume()
    cold(named('a'))
    await settle()
    expect(outcomes).toEqual([{ eventId: 'a', token: 'me:1', outcome: 'release', delayMs: 1_000 }])
  })
})

describe('Dispatcher: several handlers', () => {
  it('runs all of them, whatever one of them throws, and remembers who succeeded', async () => {
    const { on, cold, settle, outcomes, dispatcher } = world()
    const called: string[] = []
    on('first', () => {
      called.push('first')
      throw new Error('at once')
    })
    on('second', async () => void called.push('second'))
    on('third', async () => {
      called.push('third')
      throw new Error('later')
    })
    dispatcher.resume()
    cold(named('a'))
    await settle()
    expect(called).toEqual(['first', 'second', 'third'])
    expect(outcomes).toMatchObject([
      { outcome: 'retry', handledBy: ['second'], error: 'first: Error: at once\nthird: Error: later' },
    ])
  })

  it('runs on a retry only those that have not succeeded', async () => {
    const { on, cold, settle, outcomes, dispatcher } = world()
    const called: string[] = []
    for (const name of ['first', 'second', 'third']) on(name, () => void called.push(name))
    dispatcher.resume()
    cold(named('a', { attempts: 1, handledBy: ['second', 'gone'] }))
    await settle()
    expect(called).toEqual(['first', 'third'])
    expect(outcomes).toMatchObject([{ outcome: 'done' }])
  })

  it('keeps the earlier successes when one fails again', async () => {
    const { on, cold, settle, outcomes, dispatcher } = world()
    on('first', () => {})
    on('second', failing())
    on('third', () => {})
    dispatcher.resume()
    cold(named('a', { attempts: 1, handledBy: ['first'] }))
    await settle()
    expect(outcomes).toMatchObject([{ outcome: 'retry', handledBy: ['first', 'third'] }])
  })

  it('is done when all of them have succeeded before', async () => {
    const { on, cold, settle, outcomes, dispatcher } = world()
    on('only', failing())
    dispatcher.resume()
    cold(named('a', { attempts: 1, handledBy: ['only'] }))
    await settle()
    expect(outcomes).toMatchObject([{ outcome: 'done' }])
  })

  it('gives each its own scope and disposes of it, also after an error', async () => {
    const scopes: string[] = []
    const disposed: string[] = []
    let made = 0
    const { on, cold, settle, dispatcher } = world({
      createScope: async () => {
        const name = `scope ${++made}`
        return { name, dispose: async () => void disposed.push(name) }
      },
    })
    const note = (scope: unknown) => void scopes.push((scope as { name: string }).name)
    on('first', (_, { scope }) => note(scope))
    on('second', (_, { scope }) => {
      note(scope)
      throw new Error('broken')
    })
    dispatcher.resume()
    cold(named('a'))
    await settle()
    expect(scopes.sort()).toEqual(['scope 1', 'scope 2'])
    expect(disposed.sort()).toEqual(['scope 1', 'scope 2'])
  })
})

describe('Dispatcher: interceptors', () => {
  it('run once per attempt: in order before the handlers, in reverse after them', async () => {
    const calls: string[] = []
    const interceptor = (name: string) => ({
      beforeDispatch: async () => void calls.push(`before ${name}`),
      afterDispatch: async (_: EventEnvelope, error: unknown) => void calls.push(`after ${name} ${error}`),
    })
    const { on, cold, settle, dispatcher } = world({ interceptors: [interceptor('1'), interceptor('2')] })
    on('x', () => void calls.push('x'))
    on('y', () => void calls.push('y'))
    dispatcher.resume()
    cold(named('a'))
    await settle()
    expect(calls).toEqual(['before 1', 'before 2', 'x', 'y', 'after 2 null', 'after 1 null'])
  })

  it('fail the attempt when one throws before, and the handlers are not called', async () => {
    const calls: string[] = []
    const { on, cold, settle, outcomes, dispatcher } = world({
      interceptors: [
        {
          beforeDispatch: failing('not today'),
          afterDispatch: (_, error) => void calls.push(`after: ${error}`),
        },
        { beforeDispatch: () => void calls.push('second') },
      ],
    })
    on('x', () => void calls.push('x'))
    dispatcher.resume()
    cold(named('a'))
    await settle()
    expect(calls).toEqual(['after: Error: not today'])
    expect(outcomes).toMatchObject([{ outcome: 'retry', attempts: 1, error: 'Error: not today' }])
  })

  it('change nothing when one throws after, and the others are called', async () => {
    const calls: string[] = []
    const { on, cold, settle, outcomes, dispatcher, log } = world({
      interceptors: [
        { afterDispatch: () => void calls.push('first') },
        { afterDispatch: failing('too late') },
      ],
    })
    on('x', () => {})
    dispatcher.resume()
    cold(named('a'))
    await settle()
    expect(calls).toEqual(['first'])
    expect(outcomes).toMatchObject([{ outcome: 'done' }])
    expect(log.lines.filter((line) => line.level === 'error')).toHaveLength(1)
  })

  it('see the one error, or all of them together', async () => {
    const seen: unknown[] = []
    const { on, cold, settle, dispatcher } = world({
      interceptors: [{ afterDispatch: (_, error) => void seen.push(error) }],
    })
    on('x', failing('x'))
    dispatcher.resume()
    cold(named('a'))
    await settle()
    on('y', failing('y'))
    cold(named('b'))
    await settle()
    expect(seen[0]).toMatchObject({ message: 'x' })
    expect(seen[1]).toBeInstanceOf(AggregateHandlerError)
    expect(seen[1]).toMatchObject({ errors: [{ message: 'x' }, { message: 'y' }] })
  })

  it('see the errors in the order of registration', async () => {
    const seen: unknown[] = []
    const { on, cold, settle, dispatcher } = world({
      interceptors: [{ afterDispatch: (_, error) => void seen.push(error) }],
    })
    const slow = gate()
    on('slow', () => slow.opened.then(failing('slow')))
    on('quick', failing('quick'))
    dispatcher.resume()
    cold(named('a'))
    await settle()
    slow.open()
    await settle()
    expect(seen).toMatchObject([{ errors: [{ message: 'slow' }, { message: 'quick' }] }])
  })
})

describe('Dispatcher: timeouts', () => {
  it('fail the attempt, tell the handler, and leave no timer behind', async () => {
    const { on, cold, clock, outcomes, dispatcher } = world()
    const signals: AbortSignal[] = []
    const never = (_: EventEnvelope, { signal }: { signal: AbortSignal }) => {
      signals.push(signal)
      return new Promise(() => {})
    }
    on('slow', never, { timeoutMs: 50 })
    dispatcher.resume()
    cold(named('a'))
    await clock.advance(49)
    expect(signals[0]?.aborted).toBe(false)
    await clock.advance(1)
    expect(signals[0]?.aborted).toBe(true)
    expect(signals[0]?.reason).toMatchObject({ code: 'HANDLER_TIMEOUT' })
    await clock.advance(5)
    expect(outcomes).toMatchObject([
      { outcome: 'retry', error: expect.stringContaining('HandlerTimeoutError') },
    ])
    expect(clock.timerCount).toBe(0)
  })

  it('do not matter to a handler that is in time', async () => {
    const { on, cold, settle, clock, outcomes, dispatcher } = world()
    on('quick', async () => {}, { timeoutMs: 50 })
    dispatcher.resume()
    cold(named('a'))
    await settle()
    expect(outcomes).toMatchObject([{ outcome: 'done' }])
    expect(clock.timerCount).toBe(0)
  })

  it('catch a handler that throws at once', async () => {
    const { on, cold, settle, clock, outcomes, dispatcher } = world()
    on('broken', failing(), { timeoutMs: 50 })
    dispatcher.resume()
    cold(named('a'))
    await settle()
    expect(outcomes).toMatchObject([{ outcome: 'retry' }])
    expect(clock.timerCount).toBe(0)
  })

  it('do not run the event beside its overdue run, and run it once that has ended', async () => {
    const { on, cold, clock, settle, outcomes, dispatcher, inFlight } = world()
    const first = gate()
    let calls = 0
    let running = 0
    let most = 0
    on(
      'slow',
      async () => {
        most = Math.max(most, ++running)
        if (calls++ === 0) await first.opened
        running--
      },
      { timeoutMs: 50 },
    )
    dispatcher.resume()
    cold(named('a', { token: 'me:1' }))
    await clock.advance(60)
    expect(inFlight.size).toBe(0)
    cold(named('a', { token: 'me:2', attempts: 1 }))
    await settle()
    expect(outcomes.at(-1)).toEqual({ eventId: 'a', token: 'me:2', outcome: 'release', delayMs: 1_000 })
    first.open()
    await settle()
    cold(named('a', { token: 'me:3', attempts: 1 }))
    await settle()
    expect(outcomes.at(-1)).toEqual({ eventId: 'a', token: 'me:3', outcome: 'done' })
    expect({ calls, most }).toEqual({ calls: 2, most: 1 })
  })

  it('let a place be used again although the overdue handler never ends', async () => {
    const { on, cold, clock, outcomes, dispatcher } = world({ concurrency: 1 })
    on('stuck', (one) => (one.eventId === 'a' ? new Promise(() => {}) : undefined), { timeoutMs: 50 })
    dispatcher.resume()
    cold(named('a'), named('b'))
    await clock.advance(60)
    expect(outcomes.map((one) => [one.eventId, one.outcome])).toEqual([
      ['a', 'retry'],
      ['b', 'done'],
    ])
  })

  // Today all handlers of an event share one signal.
  it('of one handler do not abort its neighbour', async () => {
    const { on, cold, clock, dispatcher } = world()
    const signals: AbortSignal[] = []
    const neighbour = gate()
    on('slow', () => new Promise(() => {}), { timeoutMs: 50 })
    on('neighbour', (_, { signal }) => {
      signals.push(signal)
      return neighbour.opened
    })
    dispatcher.resume()
    cold(named('a'))
    await clock.advance(60)
    const aborted = signals[0]?.aborted
    neighbour.open()
    expect(aborted).toBe(false)
  })
})

describe('Dispatcher: what a handler is told', () => {
  it('the attempt, a log with the ids bound, and a signal that fires when the lease is lost', async () => {
    const { on, cold, settle, log, dispatcher } = world()
    const run = gate()
    const told: unknown[] = []
    on('note', async (_, context) => {
      told.push(context.attempt, context.signal.aborted)
      context.log.info({ n: 1 }, 'hello')
      await run.opened
      told.push(context.signal.aborted)
    })
    dispatcher.resume()
    const one = named('a', { attempts: 2 })
    cold(one)
    await settle()
    one.lose(new Error('lost'))
    run.open()
    await settle()
    expect(told).toEqual([3, false, true])
    expect(log.lines.find((line) => line.message === 'hello')?.fields).toMatchObject({
      ...{ n: 1, event_id: 'a', event_type: 'order.placed', handler: 'note', attempt: 3 },
    })
  })

  it('shows the abort also to a handler that looks at its signal for the first time afterwards', async () => {
    const { on, cold, settle, dispatcher } = world()
    const run = gate()
    let aborted: boolean | undefined
    on('note', async (_, context) => {
      await run.opened
      aborted = context.signal.aborted
    })
    dispatcher.resume()
    const one = named('a')
    cold(one)
    await settle()
    one.lose(new Error('lost'))
    run.open()
    await settle()
    expect(aborted).toBe(true)
  })
})
