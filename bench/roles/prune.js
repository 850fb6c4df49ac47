import { setTimeout as sleep } from 'node:timers/promises'
import { now } from '../lib/numbers.js'

/** Deletes `count` old rows in batches and rests in between, as a started outbox does. Answers when. */
export async function play({ side, url, count, batch, olderThanMs }) {
  const app = await side.open(url, { connections: 2 })
  const { store } = app.outbox
  const began = now()
  for (let left = count; left > 0; ) {
    const started = now()
    left -= await store.pruneDone(olderThanMs, batch)
    await sleep(now() - started)
  }
  const ended = now()
  await app.stop()
  return { began, ended }
}
