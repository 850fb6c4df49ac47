import { now } from '../lib/numbers.js'
import { payloadOf } from '../lib/payload.js'

/**
 * `connections` loops of business transactions, one event each, as fast as they go: first `warm` transactions, then
 * `count` on the clock. With `handle` the same process handles them, and the clock stops with the last one handled.
 */
export async function play({ side, url, connections, warm, count, handle, options }) {
  const app = await side.open(url, { connections, ...options })
  let handled = 0
  let waiting
  await app.start(
    handle
      ? async () => {
          handled++
          if (handled === waiting?.until) waiting.done()
        }
      : undefined,
  )
  const handledAll = (until) => {
    if (!handle || handled >= until) return
    return new Promise((done) => {
      waiting = { until, done }
    })
  }
  const run = async (from, to) => {
    let next = from
    const loop = async () => {
      while (next < to) await app.transaction(payloadOf(next++))
    }
    await Promise.all(Array.from({ length: connections }, loop))
    const committed = now()
    await handledAll(to)
    return committed
  }
  await run(0, warm)
  const began = now()
  const cpu = process.cpuUsage()
  const committed = await run(warm, warm + count)
  const ended = now()
  const { user, system } = process.cpuUsage(cpu)
  await app.stop()
  return {
    rate: (count / (ended - began)) * 1000,
    committedRate: (count / (committed - began)) * 1000,
    handledLate: ended - committed,
    cpuMicrosPerEvent: (user + system) / count,
  }
}
