import { alternate, drain } from '../lib/measure.js'
import { megabytes } from '../lib/numbers.js'
import { compare, limit } from '../lib/report.js'

export const title = 'drain a large backlog'
const MAX_MB = 200
/** The default of Node 20 and 22. Node 24 lets its youngest objects take 100 MB more, however few are alive. */
const FLAGS = ['--max-semi-space-size=16']

/** A backlog ten times as large: as fast for each event, and in no more memory than a process may have. */
export async function run(context) {
  const [large, small] = [context.size(1_000_000, 100_000), context.size(100_000, 20_000)]
  const warm = small / 10
  const sides = {
    large: () => drain(context, 'ours', { count: large, warm, flags: FLAGS }),
    small: () => drain(context, 'ours', { count: small, warm, flags: FLAGS }),
  }
  const results = await alternate(context, sides, Object.keys(sides), 3)
  await context.databases.forget(`ours ${large + warm}`)
  const backlog = large.toLocaleString('en-US')
  const what = `drain a backlog of ${backlog}, vs ${small.toLocaleString('en-US')}`
  return [
    compare(results, { what, ours: 'large', peer: 'small', atLeast: 0.9 }),
    limit(results.large, {
      what: `peak memory (RSS) of the process that drains ${backlog}, ${FLAGS}`,
      field: 'peakMb',
      format: megabytes,
      atMost: MAX_MB,
    }),
  ]
}
