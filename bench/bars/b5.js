import { inTurns, medianOf, onEmpty } from '../lib/measure.js'
import { perSecond } from '../lib/numbers.js'
import { ratioRow } from '../lib/report.js'

export const title = 'what publishing costs a transaction'

export async function run(context) {
  const count = context.size(20_000, 4_000)
  const job = { role: 'load', connections: 16, warm: count / 10, count }
  const load = (side, handle) => () =>
    onEmpty(context, side, (url) => context.child({ ...job, side, url, handle }))
  const results = await inTurns(context, {
    publish: load('ours', false),
    bare: load('bare', false),
    hot: load('ours', true),
  })
  const peer = medianOf(results.bare, 'rate')
  const row = (name, what, atLeast) => {
    const ours = medianOf(results[name], 'rate')
    const details = { runs: { ours: results[name], bare: results.bare } }
    return ratioRow({ what, ours, peer, format: perSecond, ratio: ours / peer, atLeast, details })
  }
  return [
    row('publish', 'transaction with one publish, 16 connections, vs a bare INSERT', 0.85),
    row('hot', 'the same, and handled in the process, vs a bare INSERT'),
  ]
}
