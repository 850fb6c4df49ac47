import { parseArgs } from 'node:util'

/** What a study is told on the command line; throws with a sentence when it does not understand. */
export function readStudyOptions(argv, { name, parts, repeat }) {
  const { values } = parseArgs({
    args: argv,
    options: {
      quick: { type: 'boolean', default: false },
      out: { type: 'string' },
      json: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
      only: { type: 'string' },
      ...(repeat ? { repeat: { type: 'string', default: String(repeat) } } : {}),
    },
  })
  const times = Number(values.repeat ?? 1)
  if (!Number.isInteger(times) || times < 1) throw new Error('--repeat wants a whole number, at least 1')
  const only = values.only?.split(',').map((part) => part.trim().toLowerCase()) ?? parts
  const unknown = only.filter((part) => !parts.includes(part))
  if (unknown.length > 0) throw new Error(`no ${unknown.join(', ')}; there are ${parts.join(', ')}`)
  return { ...values, repeat: times, only, usage: usage({ name, parts, repeat }) }
}

function usage({ name, parts, repeat }) {
  const lines = [
    ['--only a,b', `of ${parts.join(', ')}`],
    ['--quick', 'smaller sizes: a look, not a verdict'],
    ...(repeat
      ? [['--repeat N', `repetitions of each measurement (default ${repeat}); the median counts`]]
      : []),
    ['--out DIR', 'where the files go (default bench/results)'],
    ['--json', 'one JSON document on standard output instead of the table'],
    ['--help', ''],
  ]
  const described = lines.map(([option, text]) => `  ${option.padEnd(16)} ${text}`.trimEnd())
  return [`npm run bench -- ${name} [options]`, '', ...described].join('\n')
}
