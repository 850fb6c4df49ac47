import { setTimeout as sleep } from 'node:timers/promises'
import { now } from '../lib/numbers.js'
import { payloadOf } from '../lib/payload.js'

/** Transactions a second before the clock starts: code that is rarely called takes minutes to be compiled. */
const WARM_RATE = 500

/**
 * Business transactions on a fixed schedule, `rate` a second, whether or not the earlier ones are through (open loop).
 * `publish` and `handle` say which half this process plays. Answers when each commit was confirmed and when its
 * handler began, on the machine's common clock; events before `warm` are not counted.
 */
export async function play({
  side,
  url,
  connections,
  rate,
  warm,
  count,
  publish,
  handle,
  options,
  say,
  told,
}) {
  const total = warm + count
  const commits = new Float64Array(total)
  const handled = new Float64Array(total)
  let left = total
  const last = Promise.withResolvers()
  const app = await side.open(url, {
    connections,
    onCommit: (id) => {
      commits[id] = now()
    },
    ...options,
  })
  if (handle) {
    await app.start(async ({ id }) => {
      handled[id] ||= now()
      if (--left === 0) last.resolve()
    })
  }
  say('ready')
  await told('go')
  let seconds
  if (publish) {
    await produce(app, { from: 0, to: warm, rate: WARM_RATE })
    seconds = await produce(app, { from: warm, to: total, rate })
  }
  if (handle) await last.promise
  else await told('stop')
  await app.stop()
  return { commits: commits.slice(warm), handled: handled.slice(warm), achieved: seconds && count / seconds }
}

async function produce(app, { from, to, rate }) {
  const open = []
  const began = now()
  let next = from
  while (next < to) {
    const due = Math.min(to, from + Math.floor(((now() - began) / 1000) * rate) + 1)
    while (next < due) open.push(app.transaction(payloadOf(next++)))
    await sleep(1)
  }
  await Promise.all(open)
  return (now() - began) / 1000
}
