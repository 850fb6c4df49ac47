import fs from 'node:fs'
import path from 'node:path'
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
  const stores = namesOf('--store', values.store, STORES)
  const faults = namesOf('--fault', values.fault, Object.keys(scenarios))
  if (!stores.some((store) => faults.some((name) => scenarios[name].stores.includes(store)))) {
    throw new Error(`${faults.join(', ')} does not apply to ${stores.join(', ')}; see --list`)
  }
  const minutes = values.rounds === undefined ? 2 : Number.POSITIVE_INFINITY
  return {
    ...{ ...values, stores, faults },
    rounds: numberOf('--rounds', values.rounds, Number.POSITIVE_INFINITY, isCount),
    minutes: numberOf('--minutes', values.minutes, minutes, isPositive),
    seed: numberOf('--seed', values.seed, Math.floor(Math.random() * 1_000_000_000), isSeed),
  }
}

const ROOT = path.resolve(import.meta.dirname, '../..')

/** What would be noticed too late: there is nothing to run, or nowhere to write the report. */
export function checkFiles(options) {
  const dir = options.package ?? ROOT
  if (!fs.existsSync(path.join(dir, 'dist/index.js'))) {
    throw new Error(`there is no dist/ in ${options.package ?? 'this folder'}; build it first: npm run build`)
  }
  for (const name of ['json', 'markdown']) if (options[name] !== undefined) tryWriting(name, options[name])
}

function tryWriting(name, file) {
  const isNew = !fs.existsSync(file)
  try {
    fs.closeSync(fs.openSync(file, 'a'))
  } catch (error) {
    throw new Error(`--${name}: ${file} cannot be written (${error.code})`)
  }
  if (isNew) fs.rmSync(file)
}

function namesOf(option, given, known) {
  if (given === undefined) return known
  const names = given.split(',').flatMap((name) => (name.trim() === 'all' ? known : name.trim()))
  const unknown = names.filter((name) => !known.includes(name))
  if (unknown.length > 0)
    throw new Error(`${option}: no ${unknown.join(', ')}; there are ${known.join(', ')}`)
  return names
}

const isCount = {
  test: (number) => Number.isSafeInteger(number) && number > 0,
  text: 'a whole number from 1',
}
const isSeed = {
  test: (number) => Number.isSafeInteger(number) && number >= 0,
  text: 'a whole number from 0',
}
const isPositive = { test: (number) => number > 0, text: 'a number above 0' }

function numberOf(option, given, otherwise, wanted) {
  if (given === undefined) return otherwise
  const number = Number(given)
  if (given.trim() === '' || !wanted.test(number)) throw new Error(`${option} wants ${wanted.text}`)
  return number
}
