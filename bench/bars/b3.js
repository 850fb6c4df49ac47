import { DEFAULTS, graphileSides } from '../lib/graphile-settings.js'
import { alternate, onEmpty } from '../lib/measure.js'
import { compare } from '../lib/report.js'

export const title = 'business transaction + publish + handled, in one process'

export async function run(context) {
  const load = (side, count, { handle = true, warm = count, ...options } = {}) => {
    const job = { role: 'load', side, connections: 16, warm, count, handle, options }
    return onEmpty(context, side, (url) => context.child({ ...job, url }))
  }
  const count = context.size(16_000, 2_000)
  const fewer = context.size(4_500, 600)
  const sides = {
    ours: () => load('ours', count),
    // graphile-worker warms up more slowly, because it does more work per job.
    ...graphileSides('load', (options) => load('graphile', fewer, { warm: 2 * fewer, ...options })),
    'ours, logging': () => load('ours', count, { defaultLogger: true }),
    'graphile-worker, defaults': () => load('graphile', fewer / 2, { tuning: DEFAULTS }),
    'bare INSERT': () => load('bare', count, { handle: false }),
  }
  const what = 'transaction + publish + handled, 16 connections'
  const peer = 'graphile-worker'
  const results = await alternate(context, sides, ['ours', peer], 5)
  const row = (text, sides) => compare(results, { what: text, peer, ...sides })
  return [
    row(`${what}, vs graphile-worker`, { atLeast: 4 }),
    row('the same, vs graphile-worker, tuned', { peer: 'graphile-worker, tuned' }),
    row('the same, vs graphile-worker by its defaults, 24 jobs at once', {
      peer: 'graphile-worker, defaults',
    }),
    row('the same with the default logger, vs graphile-worker', { ours: 'ours, logging' }),
    row('no outbox: a bare INSERT that nobody handles, vs graphile-worker', { ours: 'bare INSERT' }),
  ]
}
