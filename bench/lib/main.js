import os from 'node:os'
import { bars } from '../bars/index.js'
import { endChildren } from './children.js'
import { readOptions, USAGE } from './options.js'
import { printProfiles } from './profile.js'
import { Progress } from './progress.js'
import { printTable, toJson } from './report.js'
import { openSession } from './session.js'

export async function main(argv) {
  const options = optionsOrComplaint(argv)
  if (!options) return
  if (options.help) return console.log(USAGE)
  const began = Date.now()
  const progress = new Progress(process.stderr)
  warnOfCompany()
  const session = await openSession({ ...options, progress })
  const rows = []
  try {
    for (const id of options.bars) {
      progress.bar = id
      rows.push(...(await runBar(id, session)))
      if (session.over) return // interrupted: what follows is only the noise of breaking off
    }
  } finally {
    progress.clear()
    await session.end()
  }
  const about = {
    node: process.version,
    postgres: session.server.major,
    seconds: (Date.now() - began) / 1000,
  }
  if (options.json) console.log(JSON.stringify(toJson(rows, { ...about, options }), null, 2))
  else printTable(rows, about)
  if (options.profile && !options.json) printProfiles()
  process.exitCode = rows.some((row) => row.holds === false) ? 1 : 0
}

function optionsOrComplaint(argv) {
  try {
    return readOptions(argv, Object.keys(bars))
  } catch (error) {
    console.error(`bench: ${error.message}`)
    process.exitCode = 2
  }
}

function warnOfCompany() {
  const [load] = os.loadavg()
  const cores = os.availableParallelism()
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
    return [{ bar: id, what: bars[id].title, holds: false, error: error.stack ?? String(error) }]
  }
}
