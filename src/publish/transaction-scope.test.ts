import { describe, expect, it } from 'vitest'
import { recordingLogger } from '../../test/support/recording.js'
import { CommitUnknownError, NoActiveTransactionError, TransactionEndedError } from '../core/errors.js'
import { memoryStore } from '../stores/memory/index.js'
import { gate } from '../testing/store-conformance/fixtures.js'
import { createTestOutbox } from '../testing/test-outbox.js'
import { VirtualClock } from '../testing/virtual-clock.js'
import type { Transaction } from '../transaction.js'

function world(onCall: (method: string) => void | Promise<void> = () => {}) {
  const clock = new VirtualClock()
  const log = recordingLogger()
  const outbox = createTestOutbox({ clock, store: memoryStore({ clock, onCall }), logger: log })
  const ids = async () => (await outbox.records()).map((row) => row.eventId)
  return { outbox, log, ids, clock }
}

const named = (eventId: string) => ({ type: 'a', eventId })

async function turns(): Promise<void> {
  for (let n = 0; n < 5; n++) await new Promise((resolve) => setImmediate(resolve))
}

describe('a transaction', () => {
  it('returns what its body returns, and rethrows what it throws', async () => {
    const { outbox, ids } = world()
    expect(await outbox.transaction(async () => 5)).toBe(5)
    const mine = new Error('mine')
    const failing = outbox.transaction(async (tx) => {
      await tx.publish(named('x'))
      throw mine
    })
    await expect(failing).rejects.toBe(mine)
    expect(await ids()).toEqual([])
  })

  it('takes more events than a call takes arguments', async () => {
    const { outbox } = world()
    const many = Array.from({ length: 150_000 }, (_, n) => ({ type: 'a', payload: n }))
    expect(await outbox.transaction((tx) => tx.publishAll(many))).toHaveLength(many.length)
    expect((await outbox.store.stats()).pending).toBe(many.length)
  })

  it('is rolled back for certain when another one, in its body, has an unknown end', async () => {
    const { outbox } = world()
    const other = new CommitUnknownError(new Error('the line is dead'))
    let isTold = false
    const running = outbox.transaction(async (tx) => {
      tx.afterRollback(() => {
        isTold = true
      })
      throw other
    })
    await expect(running).rejects.toBe(other)
    await turns()
    expect(isTold).toBe(true)
  })

  it('refuses everything once it has ended, and writes nothing', async () => {
    const { outbox, ids } = world()
    for (const fails of [false, true]) {
      let ended: Transaction | undefined
      const body = async (tx: Transaction) => {
        ended = tx
        if (fails) throw new Error('roll back')
      }
      await outbox.transaction(body).catch(() => {})
      const tx = ended as Transaction
      await expect(tx.publish(named('late'))).rejects.toThrow(TransactionEndedError)
      await expect(tx.publishAll([])).rejects.toThrow(TransactionEndedError)
      await expect(tx.transaction(async () => {})).rejects.toThrow(TransactionEndedError)
      expect(() => tx.afterCommit(() => {})).toThrow(TransactionEndedError)
      expect(() => tx.afterRollback(() => {})).toThrow(TransactionEndedError)
    }
    expect(await ids()).toEqual([])
  })

  it('refuses a publish of a promise that floats past its end', async () => {
    const { outbox, ids } = world()
    const later = gate()
    let floating: Promise<unknown> = Promise.resolve()
    await outbox.transaction(async () => {
      floating = later.opened.then(() => outbox.publish(named('late')))
      floating.catch(() => {})
    })
    later.open()
    await expect(floating).rejects.toThrow(TransactionEndedError)
    expect(await ids()).toEqual([])
  })

  it('waits for a publish that was not awaited', async () => {
    const slow = gate()
    const { outbox, ids } = world((method) => (method === 'append' ? slow.opened : undefined))
    let floating: Promise<unknown> = Promise.resolve()
    const running = outbox.transaction(async (tx) => {
      floating = tx.publish(named('floating'))
    })
    await turns()
    expect(await ids()).toEqual([])
    slow.open()
    await running
    expect(await floating).toBe('floating')
    expect(await ids()).toEqual(['floating'])
  })

  it('includes or refuses each publish that comes while it ends, and says so truly', async () => {
    for (let awaits = 0; awaits < 25; awaits++) {
      const { outbox, ids } = world(() => new Promise((resolve) => setImmediate(resolve)))
      const told: string[] = []
      const chain = async (tx: Transaction) => {
        for (let n = 0; n < 5; n++) {
          told.push(await tx.publish(named(`${n}`)))
          for (let tick = 0; tick < awaits; tick++) await undefined
        }
      }
      let floating: Promise<unknown> = Promise.resolve()
      await outbox.transaction(async (tx) => {
        floating = chain(tx)
        floating.catch(() => {})
      })
      await floating.catch((error) => expect(error).toBeInstanceOf(TransactionEndedError))
      expect(await ids()).toEqual(told)
    }
  })

  it('ends neither before nor in the middle of a nested one that was not awaited', async () => {
    const { outbox, ids } = world()
    const inner = gate()
    let ended = false
    const running = outbox
      .transaction(async (tx) => {
        void tx.transaction(async (nested) => {
          await nested.publish(named('first'))
          await inner.opened
          await nested.publish(named('second'))
        })
      })
      .then(() => {
        ended = true
      })
    await turns()
    expect(ended).toBe(false)
    inner.open()
    await running
    expect(await ids()).toEqual(['first', 'second'])
  })

  // A nested one that begins while the outer one waits for its last publishes is not waited for.
  it('takes a nested one as a whole, or not at all, when it begins while the outer one ends', async () => {
    const slow = gate()
    const { outbox, ids } = world((method) => (method === 'append' ? slow.opened : undefined))
    let nested: Promise<unknown> = Promise.resolve()
    const running = outbox.transaction(async (tx) => {
      nested = tx.publish(named('outer')).then(() =>
        tx.transaction(async (inner) => {
          await inner.publish(named('first'))
          await turns()
          await inner.publish(named('second'))
        }),
      )
      nested.catch(() => {})
    })
    await turns()
    slow.open()
    await running
    const whole = await nested.then(
      () => true,
      () => false,
    )
    expect(await ids()).toEqual(whole ? ['outer', 'first', 'second'] : ['outer'])
  })

  it('is found by publish() inside it, and nowhere else', async () => {
    const { outbox, ids } = world()
    await expect(outbox.publish(named('x'))).rejects.toThrow(NoActiveTransactionError)
    await outbox.transaction(async () => {
      await turns()
      await outbox.publish(named('inside'))
    })
    expect(await ids()).toEqual(['inside'])
  })

  it('does not mix with another one at the same time', async () => {
    const { outbox, ids } = world()
    const run = (name: string, fails: boolean) =>
      outbox.transaction(async () => {
        await outbox.publish(named(`${name} 1`))
        await turns()
        await outbox.publish(named(`${name} 2`))
        if (fails) throw new Error('roll back')
      })
    await Promise.allSettled([run('a', false), run('b', true), run('c', false)])
    expect((await ids()).sort()).toEqual(['a 1', 'a 2', 'c 1', 'c 2'])
  })
})

describe('nested transactions', () => {
  it('join the outer one: what a failed one published is gone, and the rest stays', async () => {
    const { outbox, ids } = world()
    await outbox.transaction(async (tx) => {
      await tx.publish(named('before'))
      const failing = tx.transaction(async (inner) => {
        await inner.publish(named('gone'))
        await inner.transaction((innermost) => innermost.publish(named('gone too')))
        throw new Error('roll back to here')
      })
      await expect(failing).rejects.toThrow('roll back to here')
      await outbox.transaction(async () => void (await outbox.publish(named('nested by the outbox'))))
      await tx.publish(named('after'))
    })
    expect(await ids()).toEqual(['before', 'nested by the outbox', 'after'])
  })

  it('are gone with the outer one', async () => {
    const { outbox, ids } = world()
    const failing = outbox.transaction(async (tx) => {
      await tx.transaction((inner) => inner.publish(named('gone')))
      throw new Error('roll back')
    })
    await expect(failing).rejects.toThrow('roll back')
    expect(await ids()).toEqual([])
  })

  it('run one after the other when they are begun at once', async () => {
    const { outbox, ids } = world()
    let running = 0
    let most = 0
    await outbox.transaction(async (tx) => {
      const nested = ['a', 'b', 'c', 'd'].map((name) =>
        tx.transaction(async (inner) => {
          most = Math.max(most, ++running)
          await inner.publish(named(name))
          await turns()
          running--
          if (name === 'b') throw new Error('roll back')
        }),
      )
      await Promise.allSettled(nested)
    })
    expect(most).toBe(1)
    expect(await ids()).toEqual(['a', 'c', 'd'])
  })

  it('do not wait for themselves when they are begun on the outer handle', async () => {
    const { outbox, ids } = world()
    let ended = false
    void outbox
      .transaction(async (tx) => {
        await tx.transaction(async () => {
          await tx.transaction((innermost) => innermost.publish(named('x')))
        })
      })
      .then(() => {
        ended = true
      })
    await turns()
    expect(ended).toBe(true)
    expect(await ids()).toEqual(['x'])
  })

  it('refuse a publish after their own end, while the outer one is open', async () => {
    const { outbox, ids } = world()
    await outbox.transaction(async (tx) => {
      let ended: Transaction | undefined
      await tx.transaction(async (inner) => {
        ended = inner
      })
      await expect(ended?.publish(named('late'))).rejects.toThrow(TransactionEndedError)
      expect(() => ended?.afterCommit(() => {})).toThrow(TransactionEndedError)
    })
    expect(await ids()).toEqual([])
  })
})

describe('hooks', () => {
  it('run in the order of their registration, after the commit, and not the other kind', async () => {
    const { outbox } = world()
    const calls: string[] = []
    await outbox.transaction(async (tx) => {
      tx.afterCommit(() => calls.push('1'))
      tx.afterRollback(() => calls.push('never'))
      await tx.transaction(async (inner) => inner.afterCommit(() => calls.push('2, nested')))
      tx.afterCommit(() => calls.push('3'))
      expect(calls).toEqual([])
    })
    expect(calls).toEqual(['1', '2, nested', '3'])
  })

  it('run after a rollback, also those of nested ones that had succeeded', async () => {
    const { outbox } = world()
    const calls: string[] = []
    const failing = outbox.transaction(async (tx) => {
      tx.afterCommit(() => calls.push('never'))
      tx.afterRollback(() => calls.push('1'))
      await tx.transaction(async (inner) => inner.afterRollback(() => calls.push('2, nested')))
      throw new Error('roll back')
    })
    await expect(failing).rejects.toThrow()
    expect(calls).toEqual(['1', '2, nested'])
  })

  it('of a failed nested one: its rollback is told at once and once, its commit never', async () => {
    const { outbox } = world()
    const calls: string[] = []
    await outbox.transaction(async (tx) => {
      await tx
        .transaction(async (inner) => {
          inner.afterCommit(() => calls.push('never'))
          inner.afterRollback(() => calls.push('rolled back'))
          throw new Error('roll back to here')
        })
        .catch(() => {})
      expect(calls).toEqual(['rolled back'])
    })
    expect(calls).toEqual(['rolled back'])
  })

  it('that throw or reject are logged and harm nothing', async () => {
    const { outbox, log } = world()
    const calls: string[] = []
    const result = await outbox.transaction(async (tx) => {
      tx.afterCommit(() => {
        throw new Error('at once')
      })
      tx.afterCommit(() => Promise.reject(new Error('later')))
      tx.afterCommit(() => calls.push('last'))
      return 'fine'
    })
    await turns()
    expect(result).toBe('fine')
    expect(calls).toEqual(['last'])
    expect(log.lines.filter((line) => line.level === 'error')).toHaveLength(2)
  })

  it('are not waited for', async () => {
    const { outbox } = world()
    await outbox.transaction(async (tx) => tx.afterCommit(() => new Promise(() => {})))
  })

  it('claim nothing when the reply to the commit is lost', async () => {
    const { outbox, ids } = world((method) => {
      if (method === 'committed') throw new Error('connection lost')
    })
    const calls: string[] = []
    const running = outbox.transaction(async (tx) => {
      tx.afterCommit(() => calls.push('committed'))
      tx.afterRollback(() => calls.push('rolled back'))
      await tx.publish(named('x'))
    })
    await expect(running).rejects.toThrow(CommitUnknownError)
    expect(calls).toEqual([])
    expect(await ids()).toEqual(['x'])
  })

  it('tell of a commit that the database refused as of a rollback', async () => {
    const { outbox, ids } = world((method) => {
      if (method === 'commit') throw new Error('serialization failure')
    })
    const calls: string[] = []
    const running = outbox.transaction(async (tx) => {
      tx.afterCommit(() => calls.push('committed'))
      tx.afterRollback(() => calls.push('rolled back'))
      await tx.publish(named('x'))
    })
    await expect(running).rejects.toThrow('serialization failure')
    expect(calls).toEqual(['rolled back'])
    expect(await ids()).toEqual([])
  })

  it('run outside of the transaction: publishing needs a new one', async () => {
    const { outbox, ids } = world()
    let published: Promise<unknown> = Promise.resolve()
    let enqueued: Promise<unknown> = Promise.resolve()
    await outbox.transaction(async (tx) => {
      tx.afterCommit(() => {
        published = outbox.publish(named('nowhere'))
        published.catch(() => {})
        enqueued = outbox.transaction((next) => next.publish(named('next')))
      })
    })
    await expect(published).rejects.toThrow(NoActiveTransactionError)
    await enqueued
    expect(await ids()).toEqual(['next'])
  })
})

describe('publishAll', () => {
  it('takes arrays only, and says so', async () => {
    const outbox = createTestOutbox()
    const events = new Set([{ type: 'a' }]) as unknown as { type: string }[]
    const refused = outbox.transaction((tx) => tx.publishAll(events))
    await expect(refused).rejects.toThrow('takes an array of events')
    await expect(outbox.transaction(() => outbox.publishAll(events))).rejects.toThrow(
      'takes an array of events',
    )
    expect(await outbox.published()).toEqual([])
  })
})
