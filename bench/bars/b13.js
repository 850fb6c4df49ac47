import { graphileOptions } from '../lib/graphile-settings.js'
import { twoProcesses } from '../lib/latency.js'
import { inTurns } from '../lib/measure.js'
import { millis } from '../lib/numbers.js'
import { compare } from '../lib/report.js'

export const title = 'commit in one process to handler in another'
const RATE = 100

export async function run(context) {
  const pace = { rate: RATE, warm: RATE, count: context.size(600, 200) }
  const results = await inTurns(context, {
    ours: () => twoProcesses(context, 'ours', pace),
    'graphile-worker': () => twoProcesses(context, 'graphile', { ...pace, options: graphileOptions.remote }),
  })
  const row = (field, atLeast) => {
    const what = `commit → handler in another process at ${RATE} tx/s, ${field}, vs graphile-worker`
    return compare(results, { what, peer: 'graphile-worker', field, format: millis, less: true, atLeast })
  }
  return [row('p50', 1.5), row('p99')]
}
