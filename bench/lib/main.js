import { bars } from '../bars/index.js'
import { machine, postgresOf, versionsOf } from './about.js'
import { endChildren } from './children.js'
import { readOptions, USAGE } from './options.js'
import { prepareFolder, writeOut } from './output.js'
import { peersOf } from './peers.js'
import { printProfiles } from './profile.js'
import { Progress } from './progress.js'
import { printReport, reportOf } from './report.js'
import { openSession } from './session.js'

export async function main(argv) {
  const options = optionsOrComplaint(argv)
  if (!options) return
  if (options.help) return console.log(USAGE)
  const report = await measure(options)
  if (!report) return // interrupted: what follows is only the noise of breaking off
  if (options.json) console.log(JSON.stringify(report, null, 2))
  else printReport(report)
  if (options.profile && !options.json) printProfiles()
  process.exitCode = report.holds ? 0 : 1
  if (options.out) writeOut(options.out, report)
}

function optionsOrComplaint(argv) {
  try {
    const options = readOptions(argv, Object.keys(bars))
    if (options.out) prepareFolder(options.out)
    return options
  } catch (error) {
    console.error(`bench: ${error.message}`)
    process.exitCode = 2
  }
}

async function measure(options) {
  const began = Date.now()
  const about = { date: new Date().toISOString(), machine: machine(), node: process.version }
  warnOfCompany(about.machine)
  const progress = new Progress(process.stderr)
  const session = await openSession({ ...options, progress })
  const rows = []
  const durations = {}
  try {
    about.postgres = await postgresOf(session.databases)
    for (const id of options.bars) {
      progress.bar = id
      const from = Date.now()
      rows.push(...(await runBar(id, session)))
      durations[id] = (Date.now() - from) / 1000
      if (session.over) return undefined
    }
  } finally {
    progress.clear()
    await session.end()
  }
  return reportOf(rows, {
    ...about,
    versions: versionsOf(session.versions),
    peers: peersOf(options.bars),
    seconds: (Date.now() - began) / 1000,
    durations,
    options: { ...options, out: undefined }, // where it was written is nobody's business
  })
}

function warnOfCompany({ cores, loadAtStart: [load] }) {
  if (load < cores * 0.75) return
  process.stderr.write(
    `bench: the machine is busy (load ${load.toFixed(1)} on ${cores} cores): expect noise\n`,
  )
}

/** A bar that cannot be measured does not hold, and does not keep the others from being measured. */
async function runBar(id, session) {
  try {
    const rows = await bars[id].run(session)
    return rows.map((row) => ({ bar: id, ...row }))
  } catch (error) {
    endChildren()
    return [{ bar: id, what: bars[id].title, holds: false, error: error.message ?? String(error) }]
  }
}
