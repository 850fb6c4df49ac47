import { describe, expect, it } from 'vitest'
import { dispatcherWorld, failing, named } from '../../test/support/dispatcher-world.js'
import { gate } from '../testing/store-conformance/fixtures.js'

describe('Dispatcher: several handlers', () => {
  it('runs all of them, whatever one of them throws, and remembers who succeeded', async () => {
    const { on, cold, settle, outcomes, dispatcher } = dispatcherWorld()
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
    const { on, cold, settle, outcomes, dispatcher } = dispatcherWorld()
    const called: string[] = []
    for (const name of ['first', 'second', 'third']) on(name, () => void called.push(name))
    dispatcher.resume()
    cold(named('a', { attempts: 1, handledBy: ['second', 'gone'] }))
    await settle()
    expect(called).toEqual(['first', 'third'])
    expect(outcomes).toMatchObject([{ outcome: 'done' }])
  })

  it('keeps the earlier successes when one fails again', async () => {
    const { on, cold, settle, outcomes, dispatcher } = dispatcherWorld()
    on('first', () => {})
    on('second', failing())
    on('third', () => {})
    dispatcher.resume()
    cold(named('a', { attempts: 1, handledBy: ['first'] }))
    await settle()
    expect(outcomes).toMatchObject([{ outcome: 'retry', handledBy: ['first', 'third'] }])
  })

  it('is done when all of them have succeeded before', async () => {
    const { on, cold, settle, outcomes, dispatcher } = dispatcherWorld()
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
    const { on, cold, settle, dispatcher } = dispatcherWorld({
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

describe('Dispatcher: what a handler is told', () => {
  it('the attempt, a log with the ids bound, and a signal that fires when the lease is lost', async () => {
    const { on, cold, settle, log, dispatcher } = dispatcherWorld()
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
    const { on, cold, settle, dispatcher } = dispatcherWorld()
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
