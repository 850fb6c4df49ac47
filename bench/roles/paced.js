import { setTimeout as sleep } from 'node:timers/promises'
import { now } from '../lib/numbers.js'
import { payloadOf } from '../lib/payload.js'

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
  if (publish) seconds = await produce(app, { total, rate })
  if (handle) await last.promise
  else await told('stop')
  await app.stop()
  return { commits: commits.slice(warm), handled: handled.slice(warm), achieved: seconds && total / seconds }
}

async function produce(app, { total, rate }) {
  const open = []
  const began = now()
  let next = 0
  while (next < total) {
    const due = Math.min(total, Math.floor(((now() - began) / 1000) * rate) + 1)
    while (next < due) open.push(app.transaction(payloadOf(next++)))
    await sleep(1)
  }
  await Promise.all(open)
  return (now() - began) / 1000
}
