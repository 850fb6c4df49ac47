import fs from 'node:fs'
import { findMariadb } from '../../scripts/mariadb-server.mjs'
import { hasMysql } from '../../scripts/mysql-server.mjs'
import { runCampaign } from './campaign.js'
import { checkFiles, readOptions, USAGE } from './options.js'
import { Progress } from './progress.js'
import { failureText, listText, toJson, toMarkdown, toText } from './report.js'

export async function main(argv) {
  const options = optionsOrComplaint(argv)
  if (!options) return
  if (options.help) return console.log(USAGE)
  if (options.list) return console.log(listText())
  const began = performance.now()
  const reports = await runOrComplaint({ ...options, stores: storesThatCanBeHad(options) })
  if (!reports) return
  const about = { seed: options.seed, seconds: (performance.now() - began) / 1000, node: process.version }
  console.log(toText(reports, about))
  if (options.json) fs.writeFileSync(options.json, JSON.stringify(toJson(reports, about), null, 2))
  if (options.markdown) fs.writeFileSync(options.markdown, toMarkdown(reports, about))
  process.exitCode = reports.length > 0 && reports.every(({ isGood }) => isGood) ? 0 : 1
}

function optionsOrComplaint(argv) {
  try {
    const options = readOptions(argv)
    if (!options.help && !options.list) checkFiles(options)
    return options
  } catch (error) {
    console.error(`faults: ${error.message}`)
    process.exitCode = 2
  }
}

async function runOrComplaint(options) {
  try {
    return await run(options)
  } catch (error) {
    console.error(`faults: the campaign could not go on: ${error?.stack ?? error}`)
    process.exitCode = 1
  }
}

/** Leaves out servers that this machine does not have, unless `--store` names them. */
function storesThatCanBeHad({ store, stores }) {
  if (store || process.env.CI) return stores
  const isMissing = {
    mysql: !hasMysql(),
    mariadb: process.getuid?.() !== 0 && !findMariadb(),
  }
  for (const name of stores.filter((store) => isMissing[store]))
    console.error(`[faults] SKIPPED: ${name}. The server is not on this machine; install it to include it.`)
  return stores.filter((name) => !isMissing[name])
}

/** The first signal ends it after the round's present step, with the report so far; the second one at once. */
async function run(options) {
  const controller = new AbortController()
  const progress = new Progress(process.stderr, options)
  const interrupt = () => {
    if (controller.signal.aborted) process.exit(130)
    controller.abort()
  }
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, interrupt)
  let failed = 0
  try {
    return await runCampaign({
      ...options,
      signal: controller.signal,
      onRound: (round) => progress.show(round, failed),
      onReport: (report) => {
        if (report.isGood) return
        failed++
        progress.clear()
        console.log(`${failureText(report)}\n`)
      },
    })
  } finally {
    progress.clear()
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.removeListener(signal, interrupt)
  }
}
