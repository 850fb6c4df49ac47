import { graphileOptions } from '../lib/graphile-settings.js'
import { twoProcesses } from '../lib/latency.js'
import { inTurns, medianOf } from '../lib/measure.js'
import { millis } from '../lib/numbers.js'
import { ratioRow } from '../lib/report.js'

export const title = 'commit in one process to handler in another'
const RATE = 100

export async function run(context) {
  const pace = { rate: RATE, warm: RATE, count: context.size(1_000, 200) }
  const results = await inTurns(context, {
    ours: () => twoProcesses(context, 'ours', pace),
    'graphile-worker': () => twoProcesses(context, 'graphile', { ...pace, options: graphileOptions.remote }),
  })
  const row = (field, atLeast) => {
    const ours = medianOf(results.ours, field)
    const peer = medianOf(results['graphile-worker'], field)
    const what = `commit → handler in another process at ${RATE} tx/s, ${field}, vs graphile-worker`
    const details = { runs: results }
    return ratioRow({ what, ours, peer, format: millis, ratio: peer / ours, atLeast, details })
  }
  return [row('p50', 1.5), row('p99')]
}
