import { setTimeout as sleep } from 'node:timers/promises'
import { peakMb } from '../lib/memory.js'
import { now } from '../lib/numbers.js'

/**
 * Handles `total` waiting events. The clock starts when the first `warm` are handled and stops when the database
 * holds nothing unsettled, so that work that is only remembered in the process does not count as done.
 */
export async function play({ side, url, total, warm, options }) {
  const app = await side.open(url, options)
  const late = await app.lateId()
  let handled = 0
  let began = 0
  let cpu
  const last = Promise.withResolvers()
  const marks = []
  const every = Math.max(1, Math.floor(total / 20))
  await app.start(async () => {
    handled++
    if (handled === warm) {
      began = now()
      cpu = process.cpuUsage()
    }
    if (handled % every === 0) marks.push(now())
    if (handled === total) last.resolve()
  })
  await last.promise
  const lastHandled = now()
  // Only the latest rows are looked at, so that looking takes no time: what was claimed last is settled last.
  while (await app.unsettled(late)) await sleep(1)
  let ended = now()
  // In order of keys an earlier row can be the last.
  while (await app.unsettled()) {
    await sleep(1)
    ended = now()
  }
  const { user, system } = process.cpuUsage(cpu)
  if (handled !== total) throw new Error(`handled ${handled} of ${total}: something was handled twice`)
  await app.stop()
  const events = total - warm
  return {
    rate: (events / (ended - began)) * 1000,
    settleTail: ended - lastHandled,
    cpuMicrosPerEvent: (user + system) / events,
    peakMb: peakMb(),
    rates: marks.slice(1).map((mark, i) => (every / (mark - marks[i])) * 1000),
  }
}
