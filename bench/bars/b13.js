import { graphileSides } from '../lib/graphile-settings.js'
import { twoProcesses } from '../lib/latency.js'
import { alternate } from '../lib/measure.js'
import { millis } from '../lib/numbers.js'
import { compare } from '../lib/report.js'

export const title = 'commit in one process to handler in another'
const RATE = 100

export async function run(context) {
  const pace = { rate: RATE, warm: context.size(1_500, 200), count: context.size(600, 120) }
  const sides = {
    ours: () => twoProcesses(context, 'ours', pace),
    ...graphileSides('remote', (options) => twoProcesses(context, 'graphile', { ...pace, options })),
  }
  const results = await alternate(context, sides, ['ours', 'graphile-worker'], 5)
  const row = (peer, field, atLeast) => {
    const what = `commit → handler in another process at ${RATE} tx/s, ${field}, vs ${peer}`
    return compare(results, { what, peer, field, format: millis, less: true, atLeast })
  }
  const tuned = 'graphile-worker, tuned'
  return [
    row('graphile-worker', 'p50', 1.5),
    row('graphile-worker', 'p99'),
    row(tuned, 'p50'),
    row(tuned, 'p99'),
  ]
}
