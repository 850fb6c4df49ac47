import { describe, expect, it } from 'vitest'
import { cpuTimeMs } from '../../../test/support/cpu-time.js'
import { AftercommitError, CommitUnknownError, TransactionEndedError } from '../../core/errors.js'
import type { AppendRow, Claim, ClaimRequest, OrderedClaimRequest } from '../../store.js'
import { ANY, dead, done, event, gate, NONE } from '../../testing/store-conformance/fixtures.js'
import { VirtualClock } from '../../testing/virtual-clock.js'
import { type MemoryClient, type MemoryStore, memoryStore } from './index.js'

const APPEND = { leaseMs: 30_000, onDuplicate: 'error' } as const

function rowsOf(...events: AppendRow['event'][]): AppendRow[] {
  return events.map((one) => ({ event: one, token: null }))
}

function append(store: MemoryStore, ...events: AppendRow['event'][]) {
  return store.transaction(({ client }) => store.append(client, rowsOf(...events), APPEND))
}

async function claim(store: MemoryStore, request: Partial<ClaimRequest> = {}) {
  const bounds = { limit: 1_000, maxBytes: 1e9, fromSeq: 0, suspects: 0, skipRecentMs: 0 }
  const { rows } = await store.claim({ token: 'test:1', leaseMs: 30_000, accept: ANY, ...bounds, ...request })
  return rows
}

function claimOrdered(store: MemoryStore, request: Partial<OrderedClaimRequest> = {}) {
  const bounds = {
    keys: 250,
    runLength: 8,
    limit: 1_000,
    maxBytes: 1e9,
    afterKey: '',
    suspects: 0,
    skipRecentMs: 0,
  }
  return store.claimOrdered({ token: 'test:1', leaseMs: 30_000, accept: ANY, ...bounds, ...request })
}

describe('memoryStore: transactions', () => {
  it('says that it is not durable', () => {
    expect(memoryStore().capabilities).toMatchObject({ durable: false, multiProcess: false })
  })

  it('refuses a client whose transaction has ended', async () => {
    const store = memoryStore()
    let leaked: MemoryClient | undefined
    await store.transaction(async ({ client }) => {
      leaked = client
    })
    const client = leaked as MemoryClient
    await expect(store.append(client, rowsOf(event()), APPEND)).rejects.toThrow(TransactionEndedError)
    await expect(store.findPresent(client, ['x'])).rejects.toThrow(TransactionEndedError)
    await expect(store.ensureInTransaction(client)).rejects.toThrow(TransactionEndedError)
    expect((await store.stats()).pending).toBe(0)
  })

  it('refuses a savepoint of a transaction that has ended', async () => {
    const store = memoryStore()
    let late: (() => Promise<unknown>) | undefined
    await store.transaction(async ({ savepoint }) => {
      late = () => savepoint(async () => {})
    })
    await expect(late?.()).rejects.toThrow(TransactionEndedError)
  })

  it('refuses to commit a transaction that the body ended by hand', async () => {
    const store = memoryStore()
    await expect(store.transaction(async ({ client }) => client.rollback())).rejects.toThrow(
      TransactionEndedError,
    )
  })

  it("runs on the caller's idle client, and not on a busy one", async () => {
    const store = memoryStore()
    const own = store.connect()
    const one = event()
    await store.transaction(async ({ client }) => {
      expect(client).toBe(own)
      await store.append(client, rowsOf(one), APPEND)
      await expect(store.transaction(async () => {}, own)).rejects.toThrow(AftercommitError)
    }, own)
    expect(own.isInTransaction).toBe(false)
    expect(await claim(store)).toHaveLength(1)
  })

  it('tells when a rollback to a savepoint happened that the session did not see', async () => {
    const store = memoryStore()
    await store.transaction(async ({ client, mayHaveLostRows, savepoint }) => {
      const one = event()
      await savepoint(() => Promise.reject(new Error('seen'))).catch(() => {})
      expect(mayHaveLostRows()).toBe(false)
      const mark = client.savepoint()
      await store.append(client, rowsOf(one), APPEND)
      client.rollbackTo(mark)
      expect(mayHaveLostRows()).toBe(true)
      expect(await store.findPresent(client, [one.eventId])).toEqual(new Map())
    })
    expect(await store.list({})).toEqual([])
  })

  it('ends a deadlock with an error for one, so that the other goes on', async () => {
    const store = memoryStore()
    const [a, b] = [event(), event()]
    const aWritten = gate()
    const first = store.transaction(async ({ client }) => {
      await store.append(client, rowsOf(a), APPEND)
      aWritten.open()
      return store.append(client, rowsOf(b), APPEND)
    })
    const second = store.transaction(async ({ client }) => {
      await store.append(client, rowsOf(b), APPEND)
      await aWritten.opened
      return store.append(client, rowsOf(a), APPEND)
    })
    const results = await Promise.allSettled([first, second])
    expect(results.map((result) => result.status).sort()).toEqual(['fulfilled', 'rejected'])
    expect(results.find((result) => result.status === 'rejected')).toMatchObject({
      reason: { code: 'DEADLOCK' },
    })
    expect(await store.list({})).toHaveLength(2)
  })

  it('refuses what waited for another transaction when its own has ended meanwhile', async () => {
    const store = memoryStore()
    const one = event()
    const holder = store.connect()
    holder.begin()
    await store.append(holder, rowsOf(one), APPEND)
    const waiter = store.connect()
    waiter.begin()
    const floating = store.append(waiter, rowsOf(one), APPEND)
    const refused = expect(floating).rejects.toThrow(TransactionEndedError)
    await Promise.resolve()
    waiter.commit()
    holder.rollback()
    await refused
    expect(await store.list({})).toEqual([])
  })
})

describe('memoryStore: faults', () => {
  function faulty() {
    const calls: string[] = []
    let failing: string | undefined
    const store = memoryStore({
      onCall: (method) => {
        calls.push(method)
        if (method === failing) throw new Error(`${method} is out`)
      },
    })
    const fail = (method: string | undefined) => {
      failing = method
    }
    return { store, calls, fail }
  }

  it('lets a hook break any method before it does anything', async () => {
    const { store, fail } = faulty()
    await append(store, event())
    fail('claim')
    await expect(claim(store)).rejects.toThrow('claim is out')
    fail(undefined)
    expect(await claim(store)).toHaveLength(1)
  })

  it('rolls back when the hook throws at the commit', async () => {
    const { store, fail } = faulty()
    fail('commit')
    await expect(append(store, event())).rejects.toThrow('commit is out')
    fail(undefined)
    expect(await store.list({})).toEqual([])
  })

  it('keeps the rows and reports an unknown commit when the hook throws after it', async () => {
    const { store, fail } = faulty()
    fail('committed')
    await expect(append(store, event())).rejects.toThrow(CommitUnknownError)
    fail(undefined)
    expect(await store.list({})).toHaveLength(1)
  })

  it('names the calls in order', async () => {
    const { store, calls } = faulty()
    await append(store, event())
    expect(calls).toEqual(['transaction', 'append', 'commit', 'committed'])
  })
})

describe('memoryStore: ordering keys', () => {
  const keyed = (orderingKey: string) => event({ orderingKey })

  it('looks at a thousand keys in one claim, and goes on behind them in the next', async () => {
    const store = memoryStore()
    const keys = Array.from({ length: 1_001 }, (_, index) => `key ${String(index).padStart(4, '0')}`)
    await append(store, ...keys.map(keyed))
    const first = await claimOrdered(store, { accept: NONE })
    expect(first).toEqual({ rows: [], afterKey: 'key 0999', nextDueMs: null })
    const second = await claimOrdered(store, { accept: ANY, afterKey: 'key 0999' })
    expect(second.rows.map((row) => row.orderingKey)).toEqual(['key 1000'])
    expect(second.afterKey).toBeNull()
  })

  it.each([
    [
      'are done and deleted',
      (store: MemoryStore, rows: readonly Claim[]) => store.settleIfLeased(rows.map(done), false),
    ],
    [
      'are done and kept',
      (store: MemoryStore, rows: readonly Claim[]) => store.settleIfLeased(rows.map(done), true),
    ],
    [
      'are dead and discarded',
      async (store: MemoryStore, rows: readonly Claim[]) => {
        await store.settleIfLeased(
          rows.map((row) => dead(row, { halts: true })),
          false,
        )
        await store.discardDead({ eventIds: rows.map(({ eventId }) => eventId) })
      },
    ],
  ])('forgets an ordering key when all of its events %s', async (_, end) => {
    const store = memoryStore()
    await append(store, ...Array.from({ length: 1_200 }, (_, index) => keyed(`key ${index}`)))
    for (let afterKey: string | null = ''; afterKey !== null; ) {
      const result = await claimOrdered(store, { afterKey })
      await end(store, result.rows)
      afterKey = result.afterKey
    }
    await append(store, keyed('last key'))
    // A single claim looks at up to 1,000 keys.
    const { rows, afterKey } = await claimOrdered(store)
    expect(rows.map((row) => row.orderingKey)).toEqual(['last key'])
    expect(afterKey).toBeNull()
  })

  it('tells exactly how long the first one waits', async () => {
    const clock = new VirtualClock()
    const store = memoryStore({ clock })
    const row = { event: keyed('a'), token: null, delayMs: 500 }
    await store.transaction(({ client }) => store.append(client, [row], APPEND))
    await clock.advance(200)
    expect((await claimOrdered(store)).nextDueMs).toBe(300)
  })

  it('is not slowed down by many rows behind one that is being worked on', async () => {
    const store = memoryStore()
    await append(store, ...Array.from({ length: 20_000 }, () => keyed('a poison')))
    await claimOrdered(store)
    await append(store, ...Array.from({ length: 100 }, (_, index) => keyed(`key ${index}`)))
    const begun = cpuTimeMs()
    let handled = 0
    for (let round = 0; round < 100; round++) {
      const { rows } = await claimOrdered(store, { keys: 1, token: `t:${round}` })
      handled += (await store.settleIfLeased(rows.map(done), false)).size
    }
    expect(handled).toBe(100)
    expect(cpuTimeMs() - begun).toBeLessThan(1_000)
  })
})

describe('memoryStore: marks', () => {
  it('refuses a client whose transaction has ended', async () => {
    const store = memoryStore()
    const client = store.connect()
    await expect(store.markProcessed(client, 'mail', 'e-1')).rejects.toThrow(TransactionEndedError)
  })

  it('ends a deadlock over marks with an error for one, so that the other goes on', async () => {
    const store = memoryStore()
    const aMarked = gate()
    const first = store.transaction(async ({ client }) => {
      await store.markProcessed(client, 'mail', 'a')
      aMarked.open()
      return store.markProcessed(client, 'mail', 'b')
    })
    const second = store.transaction(async ({ client }) => {
      await store.markProcessed(client, 'mail', 'b')
      await aMarked.opened
      return store.markProcessed(client, 'mail', 'a')
    })
    const results = await Promise.allSettled([first, second])
    expect(results.map((result) => result.status).sort()).toEqual(['fulfilled', 'rejected'])
  })
})

describe('memoryStore: size', () => {
  it('claims and settles in linear time, with many foreign rows in front', async () => {
    const store = memoryStore()
    const measure = async (count: number) => {
      await append(store, ...Array.from({ length: count }, () => event({ eventType: 'mine' })))
      const begun = cpuTimeMs()
      let fromSeq = 0
      for (let round = 0; ; round++) {
        const request = { token: `t:${round}`, limit: 200, fromSeq }
        const rows = await claim(store, {
          ...request,
          accept: { names: ['mine'], versions: [1], prefixes: [] },
        })
        if (rows.length === 0) return cpuTimeMs() - begun
        fromSeq = (rows.at(-1)?.seq ?? 0) + 1
        await store.settleIfLeased(rows.map(done), true)
      }
    }
    await append(store, ...Array.from({ length: 20_000 }, () => event({ eventType: 'foreign' })))
    await measure(1_000)
    const small = await measure(5_000)
    const large = await measure(50_000)
    // Linear is 10 times as long, quadratic 100 times.
    expect(large).toBeLessThan(50 * Math.max(small, 10))
  })
})

describe('memoryStore: doorbell', () => {
  it('wakes every outbox on the same store, after ring has returned', async () => {
    const store = memoryStore()
    const heard: string[] = []
    await store.open({ onRing: (seq) => void heard.push(`one ${seq}`), onWarning: () => {} })
    await store.open({ onRing: (seq) => void heard.push(`two ${seq}`), onWarning: () => {} })
    const ringing = store.ring(7)
    expect(heard).toEqual([])
    await ringing
    await Promise.resolve()
    expect(heard).toEqual(['one 7', 'two 7'])
  })

  it('wakes nobody after the last close', async () => {
    const store = memoryStore()
    const heard: unknown[] = []
    await store.open({ onRing: (seq) => void heard.push(seq), onWarning: () => {} })
    await store.close()
    await store.close()
    await store.ring(1)
    await new Promise((resolve) => setImmediate(resolve))
    expect(heard).toEqual([])
  })
})

describe('memoryStore: registry', () => {
  it('does not count an instance twice that comes back after it was forgotten', async () => {
    const clock = new VirtualClock()
    const store = memoryStore({ clock })
    const instance = { id: 'a', host: 'h', pid: 1, version: '1', handlers: {}, accept: ANY }
    await store.heartbeat({ ...instance, counters: { done: 5, failed: 0, dead: 0 } })
    await clock.advance(1_000)
    await store.pruneInstances(10)
    await store.heartbeat({ ...instance, counters: { done: 6, failed: 0, dead: 0 } })
    expect((await store.stats()).counters.done).toBe(6)
  })
})
