import { graphileSides } from '../lib/graphile-settings.js'
import { alternate, drain } from '../lib/measure.js'
import { compare } from '../lib/report.js'

export const title = 'drain a backlog, rows deleted'

export async function run(context) {
  const count = context.size(100_000, 40_000)
  const size = { count, warm: count / 2 }
  const sides = {
    ours: () => drain(context, 'ours', size),
    ...graphileSides('drain', (options) => drain(context, 'graphile', { ...size, options })),
    'ours, logging': () => drain(context, 'ours', { ...size, options: { defaultLogger: true } }),
    'pg-boss': () => drain(context, 'pgboss', size),
  }
  const results = await alternate(context, sides, ['ours', 'graphile-worker'])
  const what = `drain ${count / 1000}k, rows deleted`
  return [
    compare(results, { what: `${what}, vs graphile-worker`, peer: 'graphile-worker', atLeast: 2.5 }),
    compare(results, { what: `${what}, vs graphile-worker, tuned`, peer: 'graphile-worker, tuned' }),
    compare(results, {
      what: `${what}, with the default logger, vs graphile-worker`,
      ours: 'ours, logging',
      peer: 'graphile-worker',
    }),
    compare(results, { what: `${what}, vs pg-boss`, peer: 'pg-boss' }),
  ]
}
