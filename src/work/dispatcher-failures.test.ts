import { describe, expect, it } from 'vitest'
import { dispatcherWorld, failing, named } from '../../test/support/dispatcher-world.js'
import { EventEnvelope } from '../core/envelope.js'
import { UnroutableEventError } from '../core/errors.js'
import { Delivery } from './delivery.js'

describe('Dispatcher: failures', () => {
  it('is done with an event that can never be read: dead, and the others go on', async () => {
    const { on, cold, settle, outcomes, dispatcher } = dispatcherWorld()
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

  it('marks an event whose row is invalid as dead, and calls neither handler nor interceptor', async () => {
    const called: string[] = []
    const interceptor = { beforeDispatch: () => void called.push('interceptor') }
    const { on, cold, settle, outcomes, dispatcher } = dispatcherWorld({ interceptors: [interceptor] })
    on('note', () => void called.push('handler'))
    dispatcher.resume()
    cold(named('bad', { invalid: 'its payload is larger than 1048576 bytes', attempts: 2 }))
    await settle()
    expect(called).toEqual([])
    const error = expect.stringMatching(/^InvalidRowError: .*its payload is larger than 1048576 bytes/)
    expect(outcomes).toEqual([
      expect.objectContaining({ eventId: 'bad', outcome: 'dead', attempts: 1, error }),
    ])
  })

  it('declares an event dead whose processes died as often as it may be tried, without running it', async () => {
    const { on, cold, settle, outcomes, dispatcher } = dispatcherWorld({ maxAttempts: 3 })
    let calls = 0
    on('note', () => void calls++)
    dispatcher.resume()
    cold(named('a', { attempts: 3, suspect: true }))
    await settle()
    expect(calls).toBe(0)
    expect(outcomes[0]).toMatchObject({ outcome: 'dead', attempts: 0 })
    expect(outcomes[0]).toMatchObject({ error: expect.stringMatching(/^ProcessDiedError: /) })
  })

  it('tells of no crash where the limit is lower than it was when the event failed', async () => {
    const { on, cold, settle, outcomes, dispatcher } = dispatcherWorld({ maxAttempts: 1 })
    let calls = 0
    on('note', () => void calls++)
    dispatcher.resume()
    cold(named('a', { attempts: 2 }))
    await settle()
    expect(calls).toBe(0)
    expect(outcomes[0]).toMatchObject({ outcome: 'dead', attempts: 0 })
    expect(outcomes[0]).toMatchObject({
      error: expect.stringMatching(/gave up: the event has failed 2 times/),
    })
  })

  it('retries after what the policy says of the attempts and the error', async () => {
    const asked: unknown[][] = []
    const policy = { delayMs: (...args: unknown[]) => asked.push(args) * 1_000 }
    const { on, cold, settle, outcomes, dispatcher } = dispatcherWorld({ policy })
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
    const { on, cold, settle, outcomes, dispatcher } = dispatcherWorld({ policy: { delayMs } })
    on('note', failing())
    dispatcher.resume()
    cold(named('a'))
    await settle()
    expect(outcomes).toMatchObject([{ outcome: 'retry', delayMs: 60_000 }])
  })

  it('is dead at the last attempt', async () => {
    const { on, cold, settle, outcomes, dispatcher } = dispatcherWorld({ maxAttempts: 3 })
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
    const { on, cold, settle, outcomes, dispatcher } = dispatcherWorld()
    on('note', () => Promise.reject(thrown))
    dispatcher.resume()
    cold(named('a'))
    await settle()
    expect(outcomes).toMatchObject([{ outcome: 'retry', failures: [{ handler: 'note', instance: 'me' }] }])
    expect(JSON.stringify(outcomes)).not.toContain('\\u0000')
  })

  it('declares what nobody handles dead, or tries again when told to', async () => {
    for (const onUnroutable of ['dead', 'retry'] as const) {
      const { cold, settle, outcomes, dispatcher } = dispatcherWorld({ onUnroutable })
      dispatcher.resume()
      cold(named('a', { unroutable: true }))
      await settle()
      expect(outcomes).toMatchObject([
        { outcome: onUnroutable, attempts: 1, error: expect.stringMatching(/^UnroutableEventError: /) },
      ])
    }
  })

  it('waits as long as the retry policy says for the error of an event without a handler', async () => {
    const calls: unknown[][] = []
    const policy = {
      delayMs(...call: [number, unknown]) {
        calls.push(call)
        return 7_000
      },
    }
    const { cold, settle, outcomes, dispatcher } = dispatcherWorld({ onUnroutable: 'retry', policy })
    dispatcher.resume()
    cold(named('a', { unroutable: true, attempts: 3 }))
    await settle()
    expect(outcomes).toMatchObject([{ outcome: 'retry', delayMs: 7_000 }])
    expect(calls).toEqual([[4, expect.any(UnroutableEventError)]])
  })

  it('counts each call of a handler once, as a success or a failure', async () => {
    const { on, onBatch, cold, settle, dispatcher, metrics } = dispatcherWorld()
    on('note', ({ eventId }) => {
      if (eventId === 'bad') throw new Error('no')
    })
    onBatch('index', { size: 3 }, (events) =>
      events.map(({ eventId }) => (eventId === 'bad' ? new Error('no') : null)),
    )
    dispatcher.resume()
    cold(named('good'), named('bad'), named('fine'))
    await settle()
    expect([metrics.total('success'), metrics.total('failure')]).toEqual([4, 2])
  })

  it('cuts and quotes an id in the log that publish() would have refused', async () => {
    const { on, cold, settle, dispatcher, log } = dispatcherWorld()
    on('note', () => {})
    dispatcher.resume()
    const ids = ['x'.repeat(10_000), 'line\nbreak', 'x'.repeat(64)]
    cold(
      ...ids.map((eventId) => {
        const stored = EventEnvelope.fromStored({
          ...{
            eventId,
            eventType: 'a',
            aggregateType: 'order',
            aggregateId: null,
            tenantId: null,
            version: 1,
          },
          ...{ orderingKey: null, payloadText: '1', payloadBytes: null, payloadSize: 1, occurredAtMs: 0 },
          ...{ headers: null, metadata: null },
        })
        return new Delivery({ ...named('x'), event: stored })
      }),
    )
    await settle()
    const logged = log.lines.map(({ fields }) => String(fields.event_id))
    expect(logged).toHaveLength(3)
    expect(logged[0]).toMatch(/^"x{10,}/)
    expect(logged[0]?.length).toBeLessThan(80)
    expect(logged.slice(1)).toEqual(['"line\\nbreak"', 'x'.repeat(64)])
  })

  it('gives back, without an attempt, what it has no handler for', async () => {
    const { cold, settle, outcomes, dispatcher } = dispatcherWorld()
    dispatcher.resume()
    cold(named('a'))
    await settle()
    expect(outcomes).toEqual([{ eventId: 'a', token: 'me:1', outcome: 'release', delayMs: 1_000 }])
  })
})
