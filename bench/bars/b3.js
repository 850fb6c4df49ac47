import { graphileSides } from '../lib/graphile-settings.js'
import { inTurns, onEmpty } from '../lib/measure.js'
import { compare } from '../lib/report.js'

export const title = 'business transaction + publish + handled, in one process'

export async function run(context) {
  const load = (side, count, options) => {
    const job = { role: 'load', side, connections: 16, warm: count / 4, count, handle: true, options }
    return onEmpty(context, side, (url) => context.child({ ...job, url }))
  }
  const count = context.size(40_000, 6_000)
  const results = await inTurns(context, {
    ours: () => load('ours', count),
    ...graphileSides('load', (options) => load('graphile', context.size(10_000, 1_500), options)),
    'ours, logging': () => load('ours', count, { defaultLogger: true }),
  })
  const what = 'transaction + publish + handled, 16 connections'
  const peer = 'graphile-worker'
  return [
    compare(results, { what: `${what}, vs graphile-worker`, peer, atLeast: 4 }),
    compare(results, { what: 'the same, vs graphile-worker, tuned', peer: 'graphile-worker, tuned' }),
    compare(results, {
      what: 'the same with the default logger, vs graphile-worker',
      ours: 'ours, logging',
      peer,
    }),
  ]
}
