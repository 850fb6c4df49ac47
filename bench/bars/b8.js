import { drain, inTurns, medianOf } from '../lib/measure.js'
import { perSecond } from '../lib/numbers.js'
import { ratioRow } from '../lib/report.js'

export const title = 'drain a backlog in order'

/** 10,000 keys with ten events each, handled one at a time and in order, against the same without keys. */
export async function run(context) {
  const count = context.size(90_000, 18_000)
  const size = { count, warm: count / 9 }
  const keys = (count + size.warm) / 10
  const results = await inTurns(context, {
    ordered: () => drain(context, 'ours', { ...size, shape: { keys } }),
    unordered: () => drain(context, 'ours', size),
  })
  const ours = medianOf(results.ordered, 'rate')
  const peer = medianOf(results.unordered, 'rate')
  const what = `drain ${count / 1000}k of ${keys.toLocaleString('en-US')} keys in order, vs unordered`
  const details = { runs: results }
  return [ratioRow({ what, ours, peer, format: perSecond, ratio: ours / peer, atLeast: 0.5, details })]
}
