import { expect, it } from 'vitest'
import { event, migratedDatabase, outboxOn, poolOn, rowsIn } from '../support/trap-kit.js'
import { signal, until } from '../support/waiting.js'
import { Worker } from '../support/worker.js'

/** Bugs of other queues about stopping and about time. */

it('pg-boss#253: no timer of any kind outlives stop(), and the process ends by itself', async () => {
  const url = await migratedDatabase()
  const worker = await Worker.started({ url, outbox: { poller: { pollIntervalMs: 50, leaseMs: 300 } } })
  await worker.untilHandled(await worker.ask('enqueue', 'thing.happened'))
  await worker.ask('stop')
  await worker.ask('endPool')
  await worker.untilIdle()
  expect(await worker.leave()).toBe(0)
  expect(worker.problems).toEqual([])
})

it('pg-boss#421: stop() has not returned before the handlers under way have ended and are written down', async () => {
  const url = await migratedDatabase()
  const observer = poolOn(url, { max: 1 })
  const { outbox } = outboxOn(poolOn(url), { dispatcher: { concurrency: 3, drainTimeoutMs: 60_000 } })
  const finish = signal()
  let running = 0
  let ended = 0
  outbox.on('thing.happened', 'work', async () => {
    running++
    await finish.promise
    ended++
  })
  await outbox.start()
  await outbox.transaction((tx) => tx.publishAll([event(), event(), event()]))
  await until('all run', () => running === 3)
  let stopped = false
  const stopping = outbox.stop().then(() => {
    stopped = true
  })
  await until('the stop has begun', async () => !(await outbox.health()).started)
  expect(stopped).toBe(false)
  finish.give()
  await stopping
  // Looked at once, without waiting: whatever comes after stop() comes too late.
  expect(ended).toBe(3)
  const rows = await rowsIn(observer)
  expect(rows.map((row) => [row.status, row.attempts, row.locked_by])).toEqual(Array(3).fill([1, 0, null]))
})

it('pg-boss#389: a timeout or a delay of more than 2^31 ms does not come at once', async () => {
  const pool = poolOn(await migratedDatabase())
  const { outbox } = outboxOn(pool, { poller: { pollIntervalMs: 20, leaseMs: 2 ** 32 } })
  const aborted: unknown[] = []
  const handled: unknown[] = []
  const handler = async ({ payload }: { payload: unknown }, { signal: over }: { signal: AbortSignal }) => {
    over.addEventListener('abort', () => aborted.push(over.reason))
    // Longer than a timer that fires at once takes.
    await pool.query('select pg_sleep(0.05)')
    handled.push(payload)
  }
  outbox.on('thing.happened', 'slow', handler, { timeoutMs: 2 ** 31 + 1_000 })
  await outbox.start()
  await outbox.enqueue(event('thing.happened', 'in a month'), { delayMs: 2 ** 31 + 1_000 })
  for (const n of [1, 2, 3]) {
    await outbox.enqueue(event('thing.happened', n), { delayMs: 1 })
    await until('it is handled', () => handled.includes(n))
  }
  expect(handled).toEqual([1, 2, 3])
  expect(aborted).toEqual([])
  expect((await rowsIn(pool))[0]).toMatchObject({ status: 0, attempts: 0 })
})
