import { parseArgs } from 'node:util'

export const USAGE = `npm run bench -- [options]

  --only B1,B3     these bars only; also those that are no bars of the plan:
                   O1 (cost of being watched), R1 (publishing while rows are pruned), S1 (each store)
  --all            O1, R1 and S1 as well; without it B1 to B13
  --quick          smaller sizes, one repetition: a look, not a verdict
  --repeat N       repetitions of each measurement (default 5); the median counts
  --out DIR        writes bench.json, bench.md and charts (SVG) there
  --socket         connections by a Unix socket instead of TCP on the loopback
  --rows N         R1: how many old rows are pruned
  --profile        CPU profile of our side: bench/results/*.cpuprofile, and the top 15 functions
  --json           one JSON document on standard output instead of the table
  --help`

const OPTIONS = {
  only: { type: 'string' },
  all: { type: 'boolean', default: false },
  quick: { type: 'boolean', default: false },
  repeat: { type: 'string' },
  out: { type: 'string' },
  socket: { type: 'boolean', default: false },
  rows: { type: 'string' },
  profile: { type: 'boolean', default: false },
  json: { type: 'boolean', default: false },
  help: { type: 'boolean', default: false },
}

/** Throws an error of one line when they make no sense. */
export function readOptions(argv, knownBars) {
  const values = parsed(argv)
  if (values.all && values.only !== undefined) throw new Error('--all and --only exclude each other')
  if (values.out === '') throw new Error('--out wants a folder')
  return {
    ...values,
    repeat: wholeNumber('repeat', values.repeat) ?? (values.quick ? 1 : 5),
    rows: wholeNumber('rows', values.rows),
    bars: barsOf(values, knownBars),
  }
}

function parsed(argv) {
  try {
    return parseArgs({ args: argv, options: OPTIONS }).values
  } catch (error) {
    throw new Error(
      `${error.message.split(/\.? (?=This command|To specify)|\n/)[0]}; --help lists the options`,
    )
  }
}

function wholeNumber(name, text) {
  if (text === undefined) return undefined
  const number = Number(text)
  if (!Number.isSafeInteger(number) || number < 1) {
    throw new Error(`--${name} wants a whole number, at least 1; it got '${text}'`)
  }
  return number
}

function barsOf({ only, all }, known) {
  if (only === undefined) return known.filter((id) => all || id.startsWith('B'))
  const wanted = only.split(',').map((id) => id.trim().toUpperCase())
  const unknown = wanted.filter((id) => !known.includes(id))
  if (unknown.length > 0) throw new Error(`no bar '${unknown.join(', ')}'; there are ${known.join(', ')}`)
  return [...new Set(wanted)]
}
