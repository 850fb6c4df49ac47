import { graphileOptions } from '../lib/graphile-settings.js'
import { inTurns, medianOf, onEmpty } from '../lib/measure.js'
import { perSecond } from '../lib/numbers.js'
import { ratioRow } from '../lib/report.js'

export const title = 'business transaction + publish + handled, in one process'

export async function run(context) {
  const load = (side, count, options) => () =>
    onEmpty(context, side, (url) =>
      context.child({
        role: 'load',
        side,
        url,
        connections: 16,
        warm: count / 10,
        count,
        handle: true,
        options,
      }),
    )
  const results = await inTurns(context, {
    ours: load('ours', context.size(20_000, 3_000)),
    'graphile-worker': load('graphile', context.size(8_000, 1_500), graphileOptions.load),
  })
  const ours = medianOf(results.ours, 'rate')
  const peer = medianOf(results['graphile-worker'], 'rate')
  const what = 'transaction + publish + handled, 16 connections, vs graphile-worker'
  const details = { runs: results }
  return [ratioRow({ what, ours, peer, format: perSecond, ratio: ours / peer, atLeast: 4, details })]
}
