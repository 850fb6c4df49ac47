import { now } from '../lib/numbers.js'

/** Deletes `count` old rows in batches, one after the other, as a started outbox does. Answers when. */
export async function play({ side, url, count, batch, olderThanMs }) {
  const app = await side.open(url, { connections: 2 })
  const { store } = app.outbox
  const began = now()
  for (let left = count; left > 0; ) left -= await store.pruneDone(olderThanMs, batch)
  const ended = now()
  await app.stop()
  return { began, ended }
}
