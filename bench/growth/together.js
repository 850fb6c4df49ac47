import { setTimeout as sleep } from 'node:timers/promises'
import { onBacklog } from '../lib/measure.js'
import { now } from '../lib/numbers.js'
import { side } from '../lib/ours.js'

/** Several consumer processes drain one backlog: the rate of all together, after the first `warm` events. */
export function drainTogether(context, { instances, count, warm }) {
  const total = count + warm
  return onBacklog(context, 'ours', total, async (url) => {
    const watcher = await side.open(url, { connections: 1 })
    const late = await watcher.lateId()
    const job = { role: 'share', side: 'ours', url }
    const children = Array.from({ length: instances }, () => context.startChild(job))
    await Promise.all(children.map((child) => child.said('ready')))
    for (const child of children) child.say('go')
    // A child that answers before it was told to stop has failed.
    const failed = children.map((child) => child.result)
    const ended = await Promise.race([allSettled(watcher, late), ...failed])
    for (const child of children) child.say('stop')
    const shares = await Promise.all(failed)
    await watcher.stop()
    return { rate: (count / (ended - begin(shares, warm))) * 1000, ...sums(shares, total) }
  })
}

async function allSettled(watcher, late) {
  while (await watcher.unsettled(late)) await sleep(2)
  for (;;) {
    const asked = now()
    if (!(await watcher.unsettled())) return asked
    await sleep(2)
  }
}

/** When the first `warm` events were through, whoever handled them. */
function begin(shares, warm) {
  const { every } = shares[0]
  const marks = shares.flatMap((share) => share.marks).sort((a, b) => a - b)
  return marks[Math.floor(warm / every) - 1]
}

function sums(shares, total) {
  const handled = shares.map((share) => share.handled)
  const all = handled.reduce((sum, part) => sum + part, 0)
  if (all !== total) throw new Error(`${shares.length} processes handled ${all} events of ${total}`)
  return { handled, peakMb: Math.max(...shares.map((share) => share.peakMb)) }
}
