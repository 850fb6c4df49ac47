import { describe, expect, it } from 'vitest'
import { captureContext, currentEvent, currentTransaction, runHandling, runInTransaction } from './ambient.js'
import { event } from './testing/store-conformance/fixtures.js'

const [ONE, TWO] = [{ outbox: 1 }, { outbox: 2 }]

describe('the ambient transaction', () => {
  it('is none outside', () => {
    expect(currentTransaction(ONE)).toBeUndefined()
    expect(currentEvent()).toBeUndefined()
  })

  it('is seen inside, also after an await, and gone outside', async () => {
    const seen = await runInTransaction(ONE, 'tx', async () => {
      await new Promise((resolve) => setImmediate(resolve))
      return currentTransaction(ONE)
    })
    expect(seen).toBe('tx')
    expect(currentTransaction(ONE)).toBeUndefined()
  })

  it('belongs to its outbox: another one does not see it, and each sees its own through the other', () => {
    runInTransaction(ONE, 'of one', () => {
      expect(currentTransaction(TWO)).toBeUndefined()
      runInTransaction(TWO, 'of two', () => {
        expect(currentTransaction(ONE)).toBe('of one')
        expect(currentTransaction(TWO)).toBe('of two')
      })
      expect(currentTransaction(TWO)).toBeUndefined()
    })
  })

  it('is the innermost of its outbox', () => {
    runInTransaction(ONE, 'outer', () => {
      runInTransaction(TWO, 'other', () => {
        runInTransaction(ONE, 'inner', () => expect(currentTransaction(ONE)).toBe('inner'))
        expect(currentTransaction(ONE)).toBe('outer')
      })
    })
  })

  it('does not leak between tasks that run at the same time', async () => {
    const task = (name: string) =>
      runInTransaction(ONE, name, async () => {
        for (let n = 0; n < 5; n++) await new Promise((resolve) => setImmediate(resolve))
        return currentTransaction(ONE)
      })
    expect(await Promise.all(['a', 'b', 'c'].map(task))).toEqual(['a', 'b', 'c'])
  })
})

describe('the ambient event', () => {
  it('is seen by the handler, and in transactions that it begins', () => {
    const handled = event()
    runHandling(
      handled,
      () => {
        expect(currentEvent()).toBe(handled)
        runInTransaction(ONE, 'tx', () => expect(currentEvent()).toBe(handled))
      },
      undefined,
    )
    expect(currentEvent()).toBeUndefined()
  })

  it('hides the transaction of whoever caused it', () => {
    runInTransaction(ONE, 'of the publisher', () => {
      runHandling(event(), () => expect(currentTransaction(ONE)).toBeUndefined(), undefined)
      expect(currentTransaction(ONE)).toBe('of the publisher')
    })
  })
})

describe('captureContext', () => {
  it('runs later work where it was captured, not where it is triggered', () => {
    const outside = captureContext()
    runInTransaction(ONE, 'tx', () => {
      expect(outside(() => currentTransaction(ONE))).toBeUndefined()
      const inside = captureContext()
      runHandling(event(), () => expect(inside(() => currentTransaction(ONE))).toBe('tx'), undefined)
    })
  })

  it('holds for what the work awaits', async () => {
    const outside = captureContext()
    const seen = runInTransaction(ONE, 'tx', () =>
      outside(async () => {
        await undefined
        return currentTransaction(ONE)
      }),
    )
    expect(await seen).toBeUndefined()
  })
})
