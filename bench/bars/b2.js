import { graphileOptions } from '../lib/graphile-settings.js'
import { drain, inTurns } from '../lib/measure.js'
import { compare } from '../lib/report.js'

export const title = 'drain a backlog, rows kept'

/** We keep the finished rows (the default), graphile-worker deletes its own: it has no other way. */
export async function run(context) {
  const count = context.size(100_000, 40_000)
  const size = { count, warm: count / 10 }
  const results = await inTurns(context, {
    ours: () => drain(context, 'ours', { ...size, options: { keepRows: true } }),
    'graphile-worker': () => drain(context, 'graphile', { ...size, options: graphileOptions.drain }),
  })
  const what = `drain ${count / 1000}k, rows kept, vs graphile-worker`
  return [compare(results, { what, peer: 'graphile-worker', atLeast: 1.5 })]
}
