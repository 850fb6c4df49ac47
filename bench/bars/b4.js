import { graphileSides } from '../lib/graphile-settings.js'
import { sameProcess } from '../lib/latency.js'
import { alternate } from '../lib/measure.js'
import { millis } from '../lib/numbers.js'
import { compare } from '../lib/report.js'

export const title = 'commit to handler, same process'
const RATE = 500

export async function run(context) {
  const pace = { rate: RATE, warm: RATE, count: context.size(3_000, 1_000) }
  const sides = {
    ours: () => sameProcess(context, 'ours', pace),
    ...graphileSides('nearby', (options) => sameProcess(context, 'graphile', { ...pace, options })),
  }
  const results = await alternate(context, sides, ['ours', 'graphile-worker'])
  const row = (peer, field, atLeast) => {
    const what = `commit → handler at ${RATE} tx/s, ${field}, vs ${peer}`
    return compare(results, { what, peer, field, format: millis, less: true, atLeast })
  }
  const tuned = 'graphile-worker, tuned'
  return [
    ...['p50', 'p99'].map((field) => row('graphile-worker', field, 10)),
    ...['p50', 'p99'].map((field) => row(tuned, field)),
  ]
}
