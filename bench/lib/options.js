import { parseArgs } from 'node:util'

export const USAGE = `npm run bench -- [options]

  --only B1,B3     these bars only
  --quick          smaller sizes: a look, not a verdict
  --repeat N       repetitions of each measurement (default 3); the median counts
  --rows N         R1: how many old rows are pruned
  --profile        CPU profile of our side: bench/results/*.cpuprofile, and the top 15 functions
  --json           one JSON document on standard output instead of the table
  --help`

export function readOptions(argv, knownBars) {
  const { values } = parseArgs({
    args: argv,
    options: {
      only: { type: 'string' },
      quick: { type: 'boolean', default: false },
      repeat: { type: 'string', default: '3' },
      rows: { type: 'string' },
      profile: { type: 'boolean', default: false },
      json: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  })
  const repeat = Number(values.repeat)
  if (!Number.isInteger(repeat) || repeat < 1) throw new Error('--repeat wants a whole number, at least 1')
  const rows = values.rows === undefined ? undefined : Number(values.rows)
  if (rows !== undefined && !(Number.isInteger(rows) && rows > 0))
    throw new Error('--rows wants a whole number, at least 1')
  const only = values.only
    ?.toUpperCase()
    .split(',')
    .map((id) => id.trim())
  const unknown = only?.filter((id) => !knownBars.includes(id)) ?? []
  if (unknown.length > 0) throw new Error(`no bar ${unknown.join(', ')}; there are ${knownBars.join(', ')}`)
  return { ...values, repeat, rows, bars: only ?? knownBars }
}
