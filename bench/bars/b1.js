import { graphileOptions } from '../lib/graphile-settings.js'
import { drain, inTurns, medianOf } from '../lib/measure.js'
import { perSecond } from '../lib/numbers.js'
import { ratioRow } from '../lib/report.js'

export const title = 'drain a backlog, rows deleted'

export async function run(context) {
  const count = context.size(100_000, 20_000)
  const size = { count, warm: count / 10 }
  const results = await inTurns(context, {
    ours: () => drain(context, 'ours', size),
    'graphile-worker': () => drain(context, 'graphile', { ...size, options: graphileOptions.drain }),
    'pg-boss': () => drain(context, 'pgboss', size),
  })
  const ours = medianOf(results.ours, 'rate')
  const row = (name, atLeast) => {
    const peer = medianOf(results[name], 'rate')
    const details = { runs: { ours: results.ours, [name]: results[name] } }
    const what = `drain ${count / 1000}k, rows deleted, vs ${name}`
    return ratioRow({ what, ours, peer, format: perSecond, ratio: ours / peer, atLeast, details })
  }
  return [row('graphile-worker', 2.5), row('pg-boss')]
}
