// A study is a command of the bench beside the bars: it measures, prints a table, and leaves JSON, Markdown and charts.
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { Progress } from './progress.js'
import { openSession } from './session.js'
import { readStudyOptions } from './study-options.js'

const RESULTS = path.resolve(import.meta.dirname, '../results')

/**
 * `measure(session, options, progress)` answers what was found, `render(document)` its `text` and its `files` by name.
 * `parts` are what `--only` can choose from.
 */
export async function runStudy({ name, argv, parts, repeat, settings, measure, render }) {
  const options = optionsOrComplaint(argv, { name, parts, repeat })
  if (!options) return
  if (options.help) return console.log(options.usage)
  const began = Date.now()
  const progress = new Progress(process.stderr)
  progress.bar = name
  const session = await openSession({ ...options, progress, settings })
  let found
  try {
    found = await measure(session, options, progress)
  } finally {
    progress.clear()
    await session.end()
  }
  const about = aboutThis(session.server, (Date.now() - began) / 1000)
  const document = { study: name, about, options: { quick: options.quick, repeat: options.repeat }, ...found }
  const { text, files } = render(document)
  const folder = path.resolve(options.out ?? RESULTS)
  write(folder, { [`${name}.json`]: `${JSON.stringify(document, null, 2)}\n`, ...files })
  console.log(options.json ? JSON.stringify(document, null, 2) : `${text}\n\n${footer(document)}`)
  if (!options.json) console.log(`Written to ${path.relative(process.cwd(), folder) || '.'}/`)
}

function optionsOrComplaint(argv, study) {
  try {
    return readStudyOptions(argv, study)
  } catch (error) {
    console.error(`bench ${study.name}: ${error.message}`)
    process.exitCode = 2
  }
}

function aboutThis(server, seconds) {
  const cpus = os.cpus()
  return {
    cpu: cpus[0]?.model ?? process.arch,
    cores: os.availableParallelism(),
    memoryGb: Math.round(os.totalmem() / 2 ** 30),
    system: `${os.type()} ${os.release()}`,
    node: process.version,
    postgres: server.major,
    seconds: Math.round(seconds),
  }
}

/** Where the figures come from, in one line. */
export function footer({ about, options }) {
  const how = options.quick ? 'quick: smaller sizes, a look and no verdict' : 'full sizes'
  const times = options.repeat > 1 ? `medians of ${options.repeat}` : 'one run of each'
  return (
    `${about.cpu}, ${about.cores} cores, ${about.memoryGb} GB, ${about.system}; Node ${about.node}, ` +
    `PostgreSQL ${about.postgres} on the same machine, fsync on; ${how}, ${times}, ${about.seconds} s.`
  )
}

function write(folder, files) {
  fs.mkdirSync(folder, { recursive: true })
  for (const [name, content] of Object.entries(files)) fs.writeFileSync(path.join(folder, name), content)
}
