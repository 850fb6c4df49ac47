import { parseArgs } from 'node:util'
import { scenarios } from '../scenarios/index.js'
import { STORES } from './stores/index.js'

export const USAGE = `npm run faults -- [options]

  --store NAME      ${STORES.join(', ')}; several with commas; default all
  --fault NAME      one kind of fault, several with commas; default all that apply (see --list). A name that is there
                    twice has two turns where others have one: --fault all,freeze
  --rounds N        so many rounds
  --minutes M       rounds until the time is over (default 2, when --rounds is not given)
  --seed S          where everything random comes from; the first round has exactly this seed
  --package DIR     the children use DIR/dist instead of ours
  --json FILE       the report as JSON
  --markdown FILE   the report as a Markdown table
  --list            the faults, and for which stores they are
  --help`

export function readOptions(argv) {
  const text = { type: 'string' }
  const flag = { type: 'boolean', default: false }
  const { values } = parseArgs({
    args: argv,
    options: {
      ...{ store: text, fault: text, rounds: text, minutes: text, seed: text, package: text },
      ...{ json: text, markdown: text, list: flag, help: flag },
    },
  })
  return {
    ...values,
    stores: namesOf('--store', values.store, STORES),
    faults: namesOf('--fault', values.fault, Object.keys(scenarios)),
    rounds: numberOf('--rounds', values.rounds, Number.POSITIVE_INFINITY),
    minutes: numberOf(
      '--minutes',
      values.minutes,
      values.rounds === undefined ? 2 : Number.POSITIVE_INFINITY,
    ),
    seed: numberOf('--seed', values.seed, Math.floor(Math.random() * 1_000_000_000)),
  }
}

function namesOf(option, given, known) {
  if (given === undefined) return known
  const names = given.split(',').flatMap((name) => (name.trim() === 'all' ? known : name.trim()))
  const unknown = names.filter((name) => !known.includes(name))
  if (unknown.length > 0)
    throw new Error(`${option}: no ${unknown.join(', ')}; there are ${known.join(', ')}`)
  return names
}

function numberOf(option, given, otherwise) {
  if (given === undefined) return otherwise
  const number = Number(given)
  if (given.trim() === '' || !(number >= 0)) throw new Error(`${option} wants a number`)
  return number
}
