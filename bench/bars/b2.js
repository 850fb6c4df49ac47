import { graphileSides } from '../lib/graphile-settings.js'
import { alternate, drain } from '../lib/measure.js'
import { compare } from '../lib/report.js'

export const title = 'drain a backlog, rows kept'

/** We keep the finished rows (the default), graphile-worker deletes its own: it has no other way. */
export async function run(context) {
  const count = context.size(100_000, 40_000)
  const size = { count, warm: count / 2 }
  const results = await alternate(context, {
    ours: () => drain(context, 'ours', { ...size, options: { keepRows: true } }),
    ...graphileSides('drain', (options) => drain(context, 'graphile', { ...size, options })),
  })
  const what = `drain ${count / 1000}k, rows kept`
  return [
    compare(results, { what: `${what}, vs graphile-worker`, peer: 'graphile-worker', atLeast: 1.5 }),
    compare(results, { what: `${what}, vs graphile-worker, tuned`, peer: 'graphile-worker, tuned' }),
  ]
}
