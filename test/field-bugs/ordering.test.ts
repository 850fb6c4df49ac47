import { expect, it } from 'vitest'
import { fixedDelay } from '../../src/index.js'
import { event, migratedDatabase, outboxOn, poolOn, rowsIn } from '../support/trap-kit.js'
import { signal, until } from '../support/waiting.js'

/** Bugs of other queues and outboxes about the order of events. */

/** Draws its number first and commits last. */
async function lateCommit(orderingKey?: string) {
  const url = await migratedDatabase()
  const pool = poolOn(url, { max: 4 })
  const { outbox } = outboxOn(poolOn(url), { poller: { pollIntervalMs: 100 } }, { doorbell: false })
  const handled: string[] = []
  outbox.on('thing.happened', 'see', (one) => void handled.push(one.eventId))
  await outbox.start()
  const writer = outboxOn(poolOn(url), {}, { doorbell: false }).outbox
  const one = (eventId: string) => ({ ...event(), eventId, ...(orderingKey ? { orderingKey } : {}) })
  const written = signal()
  const commit = signal()
  const late = writer.transaction(async (tx) => {
    await tx.publishAll([one('late')], { onDuplicate: 'ignore' })
    written.give()
    await commit.promise
  })
  await written.promise
  for (const n of [1, 2, 3]) {
    await writer.enqueue(one(`early ${n}`))
    await until('it is handled', () => handled.includes(`early ${n}`))
  }
  await until('they are settled', async () => (await rowsIn(pool)).every((row) => row.status === 1))
  commit.give()
  await late
  await until('the late one is handled', () => handled.includes('late'), 5_000)
  expect((await rowsIn(pool))[0]?.event_id).toBe('late')
  expect(handled).toEqual(['early 1', 'early 2', 'early 3', 'late'])
}

it('watermill#311: a transaction that commits behind the reading position is not skipped', () => lateCommit())

it('emmett#336: a transaction that commits behind the position of its ordering key is not skipped', () =>
  lateCommit('key'))

it('graphile-worker#621: batches keep the order of a key, also when one of its events has to be tried again', async () => {
  const url = await migratedDatabase()
  const seen: number[] = []
  const together: number[] = []
  const failed = new Set<number>()
  const instance = () => {
    const { outbox } = outboxOn(poolOn(url), {
      poller: { pollIntervalMs: 50 },
      dispatcher: { concurrency: 4 },
      retry: { policy: fixedDelay(1), maxAttempts: 5 },
    })
    return outbox.onBatch('thing.happened', 'batch', { size: 10, waitMs: 5 }, async (events) => {
      const ordered = events.filter((one) => one.orderingKey === 'k').map((one) => one.payload as number)
      together.push(ordered.length)
      await new Promise((resolve) => setImmediate(resolve))
      return events.map((one) => {
        const n = one.payload as number
        if (one.orderingKey !== 'k') return null
        const fails = n % 7 === 3 && failed.size !== failed.add(n).size
        if (!fails) seen.push(n)
        return fails ? new Error('once') : null
      })
    })
  }
  const [first, second] = [instance(), instance()] as const
  const numbers = Array.from({ length: 25 }, (_, n) => n)
  await first.transaction((tx) =>
    tx.publishAll(
      numbers.flatMap((n) => [
        { ...event('thing.happened', n), orderingKey: 'k' },
        event('thing.happened', n),
      ]),
    ),
  )
  await Promise.all([first.start(), second.start()])
  await until('all are handled', () => seen.length === numbers.length, 20_000)
  expect(seen).toEqual(numbers)
  expect(Math.max(...together)).toBe(1)
  expect(failed.size).toBeGreaterThan(2)
})

it('gruelbox#788: a slow handler of one key holds up neither other keys nor what has none', async () => {
  const url = await migratedDatabase()
  const observer = poolOn(url, { max: 1 })
  const { outbox } = outboxOn(poolOn(url), {
    poller: { pollIntervalMs: 100 },
    dispatcher: { concurrency: 2, drainTimeoutMs: 0 },
  })
  const running = signal()
  const finish = signal()
  outbox.on('slow', 'slow', async () => {
    running.give()
    await finish.promise
  })
  outbox.on('thing.happened', 'see', () => {})
  const of = (key: string) => ({ ...event(), orderingKey: key })
  await outbox.start()
  await outbox.enqueue({ ...of('slow key'), type: 'slow' })
  await running.promise
  await outbox.transaction((tx) =>
    tx.publishAll([...['a', 'b', 'a', 'c', 'slow key'].map(of), event(), event()]),
  )
  const settled = async () => (await rowsIn(observer)).filter((row) => row.status === 1).length
  await until('all others are handled and written down', async () => (await settled()) === 6)
  expect((await rowsIn(observer)).filter((row) => row.status === 0)).toHaveLength(2)
  finish.give()
  await until('its key goes on', async () => (await settled()) === 8)
})
