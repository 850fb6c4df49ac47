import { setTimeout as sleep } from 'node:timers/promises'
import { now } from '../lib/numbers.js'

/** Deletes old rows in batches until there are none, and rests in between, as a started outbox does. Answers when. */
export async function play({ side, url, count, batch, olderThanMs }) {
  const app = await side.open(url, { connections: 2 })
  const { store } = app.outbox
  const began = now()
  let pruned = 0
  for (let deleted = batch; deleted === batch; pruned += deleted) {
    const started = now()
    deleted = await store.pruneDone(olderThanMs, batch)
    await sleep(now() - started)
  }
  const ended = now()
  if (pruned !== count) throw new Error(`${pruned} rows were pruned, not ${count}`)
  await app.stop()
  return { began, ended }
}
