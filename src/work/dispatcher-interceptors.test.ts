import { describe, expect, it } from 'vitest'
import { broken, dispatcherWorld, failing, named } from '../../test/support/dispatcher-world.js'
import type { EventEnvelope } from '../core/envelope.js'
import { AggregateHandlerError } from '../core/errors.js'
import { gate } from '../testing/store-conformance/fixtures.js'
import type { Delivery } from './delivery.js'
import type { Interceptor } from './interceptors.js'

/** Notes its calls: `before a`, `after a` and the name of the error. */
function noting(calls: string[]): Interceptor {
  return {
    beforeDispatch: ({ eventId }) => void calls.push(`before ${eventId}`),
    afterDispatch: ({ eventId }, error) => {
      calls.push(['after', eventId, ...(error === null ? [] : [(error as Error).name])].join(' '))
    },
  }
}

function undecodable(eventId: string): Delivery {
  return broken(eventId, { payloadText: '{' })
}

describe('Dispatcher: interceptors', () => {
  it('run once per attempt: in order before the handlers, in reverse after them', async () => {
    const calls: string[] = []
    const interceptor = (name: string) => ({
      beforeDispatch: async () => void calls.push(`before ${name}`),
      afterDispatch: async (_: EventEnvelope, error: unknown) => void calls.push(`after ${name} ${error}`),
    })
    const { on, cold, settle, dispatcher } = dispatcherWorld({
      interceptors: [interceptor('1'), interceptor('2')],
    })
    on('x', () => void calls.push('x'))
    on('y', () => void calls.push('y'))
    dispatcher.resume()
    cold(named('a'))
    await settle()
    expect(calls).toEqual(['before 1', 'before 2', 'x', 'y', 'after 2 null', 'after 1 null'])
  })

  it('fail the attempt when one throws before, and the handlers are not called', async () => {
    const calls: string[] = []
    const { on, cold, settle, outcomes, dispatcher } = dispatcherWorld({
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
    const { on, cold, settle, outcomes, dispatcher, log } = dispatcherWorld({
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
    const { on, cold, settle, dispatcher } = dispatcherWorld({
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

  it('interceptors see an event without a handler, with the error', async () => {
    const calls: string[] = []
    const { cold, settle, outcomes, dispatcher } = dispatcherWorld({ interceptors: [noting(calls)] })
    dispatcher.resume()
    cold(named('a', { unroutable: true }))
    await settle()
    expect(calls).toEqual(['before a', 'after a UnroutableEventError'])
    expect(outcomes).toMatchObject([{ outcome: 'dead', attempts: 1 }])
  })

  it('interceptors see an event without a handler that is tried again', async () => {
    const calls: string[] = []
    const { cold, settle, outcomes, dispatcher } = dispatcherWorld({
      interceptors: [noting(calls)],
      onUnroutable: 'retry',
    })
    dispatcher.resume()
    cold(named('a', { unroutable: true }))
    await settle()
    expect(calls).toEqual(['before a', 'after a UnroutableEventError'])
    expect(outcomes).toMatchObject([{ outcome: 'retry', attempts: 1 }])
  })

  it.each([
    ['one handler', 1],
    ['several handlers', 2],
  ])('interceptors see an event of %s that cannot be decoded, with the error', async (_, count) => {
    const calls: string[] = []
    const { on, cold, settle, outcomes, dispatcher } = dispatcherWorld({ interceptors: [noting(calls)] })
    for (let n = 0; n < count; n++) on(`h${n}`, () => void calls.push('handled'))
    dispatcher.resume()
    cold(undecodable('a'), named('b'))
    await settle()
    expect(calls.filter((call) => call.endsWith('Error'))).toEqual(['after a UndecodablePayloadError'])
    expect(calls.filter((call) => call.startsWith('before'))).toEqual(['before a', 'before b'])
    expect(outcomes).toMatchObject([
      { eventId: 'a', outcome: 'dead', attempts: 1 },
      { eventId: 'b', outcome: 'done' },
    ])
  })

  it('interceptors that throw do not change the outcome of an event that cannot be decoded', async () => {
    const seen: unknown[] = []
    const { on, cold, settle, outcomes, dispatcher } = dispatcherWorld({
      interceptors: [
        { beforeDispatch: failing('not today'), afterDispatch: (_, error) => void seen.push(error) },
        { afterDispatch: failing('too late') },
      ],
    })
    on('x', () => {})
    dispatcher.resume()
    cold(undecodable('a'))
    await settle()
    expect(outcomes).toMatchObject([{ outcome: 'dead', attempts: 1 }])
    expect(seen).toMatchObject([{ name: 'UndecodablePayloadError', cause: { message: 'not today' } }])
  })

  it('interceptors see an event of a batch handler that cannot be decoded; its neighbours are handled', async () => {
    const calls: string[] = []
    const { onBatch, cold, settle, outcomes, dispatcher } = dispatcherWorld({ interceptors: [noting(calls)] })
    onBatch('batch', { size: 3, waitMs: 0 }, (events) => void calls.push(`batch of ${events.length}`))
    dispatcher.resume()
    cold(named('a'), undecodable('b'), named('c'))
    await settle()
    await settle()
    expect(calls).toContain('after b UndecodablePayloadError')
    expect(calls.filter((call) => call.startsWith('batch'))).toEqual(['batch of 2'])
    expect(Object.fromEntries(outcomes.map(({ eventId, outcome }) => [eventId, outcome]))).toEqual({
      ...{ a: 'done', b: 'dead', c: 'done' },
    })
  })

  it('see the errors in the order of registration', async () => {
    const seen: unknown[] = []
    const { on, cold, settle, dispatcher } = dispatcherWorld({
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
