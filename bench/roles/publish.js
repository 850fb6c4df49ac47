import { setTimeout as sleep } from 'node:timers/promises'
import { now } from '../lib/numbers.js'
import { payloadOf } from '../lib/payload.js'

/**
 * Business transactions on a fixed schedule, `rate` a second, handled in the same process, until it is told to stop.
 * Answers when each was due, on the machine's common clock, and how long it took from then to its confirmed commit.
 */
export async function play({ side, url, connections, rate, options, say, told }) {
  const app = await side.open(url, { connections, ...options })
  await app.start(async () => {})
  let stopped = false
  told('stop').then(() => {
    stopped = true
  })
  const due = []
  const took = []
  const open = []
  const began = now()
  const publish = async (id) => {
    due[id] = began + (id / rate) * 1000
    await app.transaction(payloadOf(id))
    took[id] = now() - due[id]
  }
  say('ready')
  for (let next = 0; !stopped; await sleep(1)) {
    const until = Math.floor(((now() - began) / 1000) * rate) + 1
    while (next < until) open.push(publish(next++))
  }
  await Promise.all(open)
  await app.stop()
  return { due, took }
}
