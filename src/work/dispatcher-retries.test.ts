import { describe, expect, it } from 'vitest'
import { delivery, dispatcherWorld, failing, named } from '../../test/support/dispatcher-world.js'
import { fixedDelay, patient } from '../core/backoff.js'
import { RetryAfter, Unrecoverable } from '../core/errors.js'
import { gate } from '../testing/store-conformance/fixtures.js'

function throwing(error: unknown): () => never {
  return () => {
    throw error
  }
}

describe('Dispatcher: retries of each handler', () => {
  it('the longest delay among those that failed decides', async () => {
    const { on, cold, settle, outcomes, dispatcher } = dispatcherWorld({ policy: fixedDelay(100) })
    on('own', failing(), { retry: { policy: fixedDelay(700) } })
    on('short', failing(), { retry: { policy: fixedDelay(5) } })
    on('common', failing())
    on('longest, and fine', () => {}, { retry: { policy: fixedDelay(9_000) } })
    dispatcher.resume()
    cold(named('a'))
    await settle()
    expect(outcomes).toMatchObject([{ outcome: 'retry', delayMs: 700, attempts: 1 }])
  })

  it('asks the policy of each with the attempts of the event and with its own error', async () => {
    const asked: unknown[][] = []
    const { on, cold, settle, dispatcher } = dispatcherWorld()
    for (const name of ['x', 'y']) {
      const delayMs = (attempts: number, error: unknown) => asked.push([name, attempts, error])
      on(name, failing(name), { retry: { policy: { delayMs } } })
    }
    dispatcher.resume()
    cold(named('a', { attempts: 2 }))
    await settle()
    expect(asked).toMatchObject([
      ['x', 3, { message: 'x' }],
      ['y', 3, { message: 'y' }],
    ])
  })

  it('a handler that has failed as often as it may is given up; the others are tried on', async () => {
    const { on, cold, settle, outcomes, dispatcher } = dispatcherWorld({ maxAttempts: 5 })
    const called: string[] = []
    const note = (name: string) => () => {
      called.push(name)
      throw new Error(name)
    }
    on('once', note('once'), { retry: { maxAttempts: 1, policy: fixedDelay(60_000) } })
    on('twice', note('twice'), { retry: { maxAttempts: 2, policy: fixedDelay(10) } })
    on('common', note('common'))
    dispatcher.resume()
    cold(named('a'))
    await settle()
    // The one that is given up has no say in the delay.
    expect(outcomes.at(-1)).toMatchObject({ outcome: 'retry', delayMs: 100, attempts: 1 })
    cold(named('a', { attempts: 1 }))
    await settle()
    cold(named('a', { attempts: 2 }))
    await settle()
    expect(called.join(' ')).toBe('once twice common twice common common')
    expect(outcomes.map((one) => one.outcome)).toEqual(['retry', 'retry', 'retry'])
  })

  it('is dead when the last one that was left fails for the last time', async () => {
    const { on, cold, settle, outcomes, dispatcher } = dispatcherWorld({ maxAttempts: 5 })
    on('once', failing('early'), { retry: { maxAttempts: 1 } })
    on('common', failing('late'))
    dispatcher.resume()
    cold(named('a', { attempts: 4 }))
    await settle()
    expect(outcomes).toMatchObject([{ outcome: 'dead', attempts: 1, error: 'common: Error: late' }])
  })

  it('is dead, with a word of who gave up, when those that were left have succeeded', async () => {
    const { on, cold, settle, outcomes, dispatcher } = dispatcherWorld()
    let calls = 0
    on('once', () => void calls++, { retry: { maxAttempts: 1 } })
    on('common', () => {})
    on('earlier', failing())
    dispatcher.resume()
    cold(named('a', { attempts: 1, handledBy: ['earlier'] }))
    await settle()
    expect(calls).toBe(0)
    expect(outcomes).toMatchObject([
      { outcome: 'dead', attempts: 0, handledBy: ['earlier', 'common'], failures: [{ handler: 'once' }] },
    ])
    expect(outcomes[0]).toMatchObject({ error: expect.stringContaining('HandlerGaveUpError') })
  })

  it('is dead at once when the failed ones are all past their limit and the others have succeeded', async () => {
    const { on, cold, settle, outcomes, dispatcher } = dispatcherWorld()
    on('once', failing(), { retry: { maxAttempts: 1 } })
    on('common', () => {})
    dispatcher.resume()
    cold(named('a'))
    await settle()
    expect(outcomes).toMatchObject([{ outcome: 'dead', attempts: 1, handledBy: ['common'] }])
  })

  it('a policy can bring its own limit, which `maxAttempts` overrules', async () => {
    const { on, cold, settle, ends, dispatcher } = dispatcherWorld({ maxAttempts: 2 })
    on('patient', failing(), { retry: { policy: patient() } })
    dispatcher.resume()
    cold(named('a', { attempts: 23 }), named('b', { attempts: 24 }))
    await settle()
    expect(ends()).toEqual(['a retry', 'b dead'])
    on('impatient', failing(), { retry: { policy: patient(), maxAttempts: 1 } })
    cold(named('c', { attempts: 0, handledBy: ['patient'] }))
    await settle()
    expect(ends().at(-1)).toBe('c dead')
  })

  it('tells a handler the attempts of the event, however many of them it has seen', async () => {
    const { on, cold, settle, dispatcher } = dispatcherWorld()
    const seen: number[] = []
    on('note', (_, { attempt }) => void seen.push(attempt))
    dispatcher.resume()
    cold(named('a', { attempts: 6, handledBy: ['another'] }))
    await settle()
    expect(seen).toEqual([7])
  })
})

describe('Dispatcher: RetryAfter', () => {
  it('counts no attempt, and says when', async () => {
    const { on, cold, settle, outcomes, dispatcher } = dispatcherWorld({ maxAttempts: 1 })
    on('note', throwing(new RetryAfter(12_345)))
    dispatcher.resume()
    cold(named('a'))
    await settle()
    expect(outcomes).toMatchObject([{ outcome: 'retry', attempts: 0, delayMs: 12_345 }])
    expect(outcomes[0]).toMatchObject({ error: expect.stringContaining('RetryAfter') })
  })

  it('of one handler does not save the others from counting; the longer of the delays holds', async () => {
    const { on, cold, settle, outcomes, dispatcher } = dispatcherWorld({ policy: fixedDelay(100) })
    on('busy', throwing(new RetryAfter(50)))
    on('broken', failing())
    on('fine', () => {})
    dispatcher.resume()
    cold(named('a'))
    await settle()
    expect(outcomes).toMatchObject([{ outcome: 'retry', attempts: 1, delayMs: 100, handledBy: ['fine'] }])
  })

  it('with a moment that has passed means at once', async () => {
    const { on, cold, settle, outcomes, dispatcher } = dispatcherWorld()
    on('note', throwing(new RetryAfter(-5)))
    dispatcher.resume()
    cold(named('a'))
    await settle()
    expect(outcomes).toMatchObject([{ outcome: 'retry', attempts: 0, delayMs: 0 }])
  })

  it.each([Number.NaN, Number.POSITIVE_INFINITY, new Date(), '30', undefined])(
    'refuses %s as a delay',
    (delay) => {
      expect(() => new RetryAfter(delay as number)).toThrow(/RetryAfter: takes a number of milliseconds/)
    },
  )

  it('can come from an interceptor too', async () => {
    const interceptors = [{ beforeDispatch: throwing(new RetryAfter(77)) }]
    const { on, cold, settle, outcomes, dispatcher } = dispatcherWorld({ interceptors, maxAttempts: 1 })
    on('note', () => {})
    dispatcher.resume()
    cold(named('a'))
    await settle()
    expect(outcomes).toMatchObject([{ outcome: 'retry', attempts: 0, delayMs: 77 }])
  })
})

describe('Dispatcher: Unrecoverable', () => {
  it('is dead at once, whatever the others say, and what succeeded is kept', async () => {
    const { on, cold, settle, outcomes, dispatcher } = dispatcherWorld()
    on('hopeless', throwing(new Unrecoverable('no such customer')))
    on('busy', throwing(new RetryAfter(5)))
    on('broken', failing())
    on('fine', () => {})
    dispatcher.resume()
    cold(named('a'))
    await settle()
    expect(outcomes).toMatchObject([{ outcome: 'dead', attempts: 1, handledBy: ['fine'] }])
    expect(outcomes[0]).toMatchObject({ error: expect.stringContaining('no such customer') })
  })

  it('stops the key when a dead event is to do that, and only if it has one', async () => {
    const { on, cold, settle, outcomes, dispatcher } = dispatcherWorld({ haltsKeys: true })
    on('hopeless', throwing(new Unrecoverable()))
    dispatcher.resume()
    cold(delivery({ eventId: 'with', orderingKey: 'k' }), delivery({ eventId: 'without' }))
    await settle()
    expect(outcomes[0]).toMatchObject({ eventId: 'with', outcome: 'dead', halts: true })
    expect(outcomes[1]).not.toHaveProperty('halts')
  })
})

describe('Dispatcher: a handler that was not started', () => {
  /** The first event keeps the gate; of the second one everything but the gated handler runs. */
  async function waiting(neighbour: () => unknown, maxAttempts: number) {
    const world = dispatcherWorld()
    const first = gate()
    const gated: string[] = []
    world.on(
      'gated',
      (event) => {
        gated.push(event.eventId)
        return first.opened
      },
      { concurrency: 1, retry: { maxAttempts } },
    )
    world.on('neighbour', (event) => (event.eventId === 'b' ? neighbour() : undefined))
    world.dispatcher.resume()
    world.cold(named('a'), named('b'))
    await world.settle()
    world.dispatcher.suspend()
    await world.settle()
    const [outcome] = world.outcomes
    first.open()
    await world.settle()
    expect(gated).toEqual(['a'])
    return outcome
  }

  it('is tried later: what the others did is kept, and no attempt is counted', async () => {
    const outcome = await waiting(() => {}, 10)
    expect(outcome).toMatchObject({ eventId: 'b', outcome: 'retry', delayMs: 0, attempts: 0 })
    expect(outcome).toMatchObject({ handledBy: ['neighbour'], failures: [] })
  })

  it('is not given up because a neighbour failed meanwhile', async () => {
    const outcome = await waiting(failing(), 1)
    expect(outcome).toMatchObject({ eventId: 'b', outcome: 'retry', attempts: 0, handledBy: [] })
  })
})
