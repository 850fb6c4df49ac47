import { AsyncLocalStorage } from 'node:async_hooks'
import { describe, expect, it } from 'vitest'
import { NoActiveTransactionError } from '../../src/index.js'
import { event, migratedDatabase, outboxOn, poolOn, rowsIn } from '../support/trap-kit.js'
import { signal, until, within } from '../support/waiting.js'

/** A handler started from the hot path must not run inside the transaction, or the request, that published. */

describe('a hot handler', () => {
  it('sees neither the transaction nor any other async context of the publisher', async () => {
    const request = new AsyncLocalStorage<string>()
    const { outbox } = outboxOn(poolOn(await migratedDatabase()), {
      poller: { pollIntervalMs: 60_000, leaseMs: 60_000 },
    })
    const seen = signal<{ request: string | undefined; publish: unknown }>()
    outbox.on('thing.happened', 'look', async () => {
      const publish = await outbox.publish(event('other.thing')).catch((error: unknown) => error)
      seen.give({ request: request.getStore(), publish })
    })
    await outbox.start()
    await request.run('request 1', () =>
      outbox.transaction(async (tx) => {
        await tx.publish(event())
      }),
    )
    const found = await within('the handler ran', seen.promise, 5_000)
    expect(found.request).toBeUndefined()
    expect(found.publish).toBeInstanceOf(NoActiveTransactionError)
  })

  it('does not inherit it when a worker of the dispatcher is already running for somebody else', async () => {
    const request = new AsyncLocalStorage<string>()
    const { outbox } = outboxOn(poolOn(await migratedDatabase()), { dispatcher: { concurrency: 1 } })
    const seen: (string | undefined)[] = []
    const first = signal()
    const release = signal()
    outbox.on('thing.happened', 'look', async () => {
      seen.push(request.getStore())
      if (seen.length > 1) return
      first.give()
      await release.promise
      seen.push(request.getStore())
    })
    await outbox.start()
    await request.run('one', () => outbox.enqueue(event()))
    await within('the first runs', first.promise, 5_000)
    await request.run('two', () => outbox.enqueue(event()))
    await request.run('three', () => {
      release.give()
      return outbox.drain()
    })
    expect(seen).toEqual([undefined, undefined, undefined])
  })

  it('runs in the context in which the outbox was made, whoever starts it', async () => {
    const request = new AsyncLocalStorage<string>()
    const url = await migratedDatabase()
    const { outbox } = request.run('boot', () => outboxOn(poolOn(url)))
    const seen: (string | undefined)[] = []
    request.run('registration', () =>
      outbox.on('thing.happened', 'look', () => void seen.push(request.getStore())),
    )
    await request.run('start', () => outbox.start())
    await request.run('request', () => outbox.enqueue(event()))
    await request.run('request', () => outbox.enqueue(event(), { delayMs: 1 }))
    await until('both ran', () => seen.length === 2)
    expect(seen).toEqual(['boot', 'boot'])
  })

  it('can publish in a transaction of its own, caused by its event', async () => {
    const pool = poolOn(await migratedDatabase())
    const { outbox } = outboxOn(pool)
    const followed = signal<string | undefined>()
    let parent = ''
    outbox.on('thing.happened', 'follow', () =>
      outbox.transaction((tx) => tx.publish(event('thing.followed'))),
    )
    outbox.on('thing.followed', 'see', (one) => followed.give(one.metadata.causationId))
    await outbox.start()
    await outbox.transaction(async (tx) => {
      parent = await tx.publish(event())
    })
    expect(await within('the follow-up', followed.promise, 5_000)).toBe(parent)
  })
})

describe('an after-commit callback', () => {
  it('is outside of the transaction, and can open a new one', async () => {
    const pool = poolOn(await migratedDatabase())
    const { outbox } = outboxOn(pool)
    const late = signal<unknown>()
    const fresh = signal<string>()
    await outbox.transaction(async (tx) => {
      tx.afterCommit(async () => {
        late.give(await outbox.publish(event()).catch((error: unknown) => error))
        fresh.give(await outbox.transaction((next) => next.publish(event('thing.followed'))))
      })
    })
    expect(await late.promise).toBeInstanceOf(NoActiveTransactionError)
    const id = await within('the new transaction', fresh.promise, 5_000)
    expect((await rowsIn(pool)).map((row) => row.event_id)).toEqual([id])
  })
})
