import { describe, expect, it } from 'vitest'
import { dispatcherWorld, failing, named } from '../../test/support/dispatcher-world.js'
import type { EventEnvelope } from '../core/envelope.js'
import { AggregateHandlerError } from '../core/errors.js'
import { gate } from '../testing/store-conformance/fixtures.js'

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
