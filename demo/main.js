// npm run demo: a shop in three processes on a PostgreSQL server of its own. One process is killed on the way; in
// the end every committed event has been handled, and none that was rolled back.
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { startPostgres } from '../scripts/postgres-server.mjs'
import { readOptions } from './options.js'
import { killAll } from './processes.js'
import { runShop } from './run.js'
import { inMs, Screen } from './screen.js'
import { LEASE_MS } from './shop.js'

process.exit(
  await main().catch((error) => {
    console.error(error instanceof Error ? error.message : error)
    return 1
  }),
)

async function main() {
  const options = readOptions(process.argv.slice(2))
  if ('help' in options) {
    console.log(options.help)
    return 0
  }
  const interrupted = new Promise((resolve) => {
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, resolve)
  })
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'aftercommit-demo-'))
  const server = await startPostgres({ fsync: true })
  const screen = new Screen()
  try {
    const shop = runShop({ url: server.url, major: server.major, folder, ...options }, screen)
    const result = await Promise.race([shop, interrupted.then(() => undefined)])
    shop.catch(() => {}) // after an interruption nobody asks for its outcome
    if (result) return report(result, screen)
    screen.say('Interrupted.')
    return 130
  } finally {
    await killAll()
    await server.stop()
    fs.rmSync(folder, { recursive: true, force: true })
  }
}

/**
 * @param {Awaited<ReturnType<typeof runShop>>} result
 * @param {Screen} screen
 * @returns {number} the exit code
 */
function report(result, screen) {
  const { verdict, hot, across } = { ...result, ...result.verdict }
  const excuse =
    verdict.unexplained === 0
      ? 'each was in the hands of the killed worker'
      : `${verdict.unexplained} of them not by the kill: a lease was lost`
  const takenOver = result.orphans > 0 && across.max > LEASE_MS / 2
  screen.table([
    ['events committed', verdict.committed],
    ['events rolled back', result.rolledBack, 'on purpose, after they were published'],
    ['events handled', verdict.handled],
    ['lost', verdict.lost, 'committed and never handled'],
    ['phantom', verdict.phantoms, 'handled and never committed'],
    ['duplicates', verdict.duplicates, verdict.duplicates > 0 ? `handled twice; ${excuse}` : 'handled twice'],
    ['commit → handler, same process', inMs(hot.p50), `p50;  p99 ${inMs(hot.p99)}`],
    [
      'commit → handler, other process',
      inMs(across.p50),
      `p50;  p99 ${inMs(across.p99)};  slowest ${inMs(across.max)}${takenOver ? ', taken over after the kill' : ''}`,
    ],
    ['events/s', result.eventsPerSecond, 'at the pace of the customers, until all was drained'],
  ])
  const ok = verdict.lost === 0 && verdict.phantoms === 0
  screen.say(
    ok ? 'Nothing was lost and nothing was a phantom.' : 'FAILED: events were lost or phantoms were handled.',
  )
  return ok ? 0 : 1
}
