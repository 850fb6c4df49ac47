import { setTimeout as sleep } from 'node:timers/promises'
import { createOutbox, silentLogger } from '../../dist/index.js'
import { now } from '../lib/numbers.js'
import { payloadOf, TYPE } from '../lib/payload.js'

const BATCH = 500

/**
 * One database, ours or a bare loop of the same driver: first `count` transactions with an order and an event each, by
 * `connections` loops at once; then the handling of `backlog` events, settled by batched UPDATEs. `bare` is `take` (each
 * batch is read and written once) or `lease` (it is first marked as taken, as it must be where there are several workers).
 */
export async function play({ database, url, bare, connections, count, backlog }) {
  const { open } = await import(`../lib/stores/${database}.js`)
  const app = await open(url, connections)
  await app.install()
  const side = bare ? app.bare : await outboxOn(app)
  let next = 0
  const transact = async (to) => {
    const loop = async () => {
      while (next < to) await side.transaction(payloadOf(next++))
    }
    await Promise.all(Array.from({ length: connections }, loop))
  }
  await transact(count / 10)
  const began = now()
  await transact(count / 10 + count)
  const transactions = (count / (now() - began)) * 1000
  while (next < backlog) await side.fill(Array.from({ length: BATCH }, () => payloadOf(next++)))
  const watch = stopwatch(next)
  const handled = bare ? await loopOver(app.bare[bare], app.bare.finish, watch) : await side.handleAll(watch)
  const drain = watch.rate()
  if (handled !== next) throw new Error(`handled ${handled} of ${next}`)
  await side.stop?.()
  await app.close()
  return { transactions, drain }
}

/** Counts from the second fifth on: a worker that has just started is no measure of one that runs for days. */
function stopwatch(total) {
  const warm = Math.floor(total / 5)
  let started
  return {
    total,
    handled(count) {
      if (started === undefined && count >= warm) started = now()
    },
    rate: () => ((total - warm) / (now() - started)) * 1000,
  }
}

async function loopOver(take, finish, watch) {
  let handled = 0
  for (;;) {
    const rows = await take(BATCH)
    if (rows.length === 0) return handled
    for (const { payload } of rows) if (payload.orderId) watch.handled(++handled)
    await finish(rows.map((row) => row.id))
  }
}

async function outboxOn({ store, insertOrder }) {
  const outbox = createOutbox({
    store,
    logger: silentLogger,
    dispatcher: { concurrency: 96 },
    poller: { batchSize: BATCH },
  })
  await outbox.migrate()
  return {
    transaction: (payload) =>
      outbox.transaction(async (tx) => {
        await insertOrder(tx.client, payload)
        await tx.publish({ type: TYPE, payload })
      }),
    fill: (payloads) =>
      outbox.transaction((tx) => tx.publishAll(payloads.map((payload) => ({ type: TYPE, payload })))),
    async handleAll(watch) {
      let handled = 0
      const all = new Promise((resolve) => {
        outbox.on(TYPE, 'bench', (event) => {
          if (!event.payload.orderId) return
          watch.handled(++handled)
          if (handled === watch.total) resolve()
        })
      })
      await outbox.start()
      await all
      while ((await store.stats()).pending > 0) await sleep(1)
      return handled
    },
    stop: () => outbox.stop(),
  }
}
