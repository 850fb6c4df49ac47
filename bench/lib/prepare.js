// What must be true before anything is measured: a Node that the peers run on, and their packages.
// This file runs on the machine's own Node and imports nothing but built-ins.
import { spawn, spawnSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { environmentFor, findNode24 } from '../../scripts/node-24.mjs'

const BENCH = path.dirname(import.meta.dirname)

/** Runs the same command again under Node 24 and answers its exit code; undefined when this Node will do. */
export async function runUnderNewerNode(file) {
  const binary = findNode24()
  if (binary === process.execPath) return undefined
  if (!binary) {
    if (Number(process.versions.node.split('.')[0]) > 22) return undefined
    throw new Error(
      'the bench needs Node 24: `npm run setup` installs it on linux-x64, elsewhere use your own',
    )
  }
  // The channel is the leash: when this process dies, however it dies, the other one notices and cleans up.
  const child = spawn(binary, [file, ...process.argv.slice(2)], {
    env: environmentFor(binary),
    stdio: ['inherit', 'inherit', 'inherit', 'ipc'],
  })
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal))
  return await new Promise((resolve, reject) => {
    child.on('error', reject)
    child.on('exit', (code) => resolve(code ?? 1))
  })
}

/** Installs the peers, once. */
export function ensureDependencies() {
  const installed = path.join(BENCH, 'node_modules', '.package-lock.json')
  const wanted = path.join(BENCH, 'package-lock.json')
  if (fs.existsSync(installed) && fs.statSync(installed).mtimeMs >= fs.statSync(wanted).mtimeMs) return
  process.stderr.write('bench: installing graphile-worker, pg-boss and pg (npm ci in bench/)\n')
  const args = ['ci', '--no-audit', '--no-fund', '--loglevel=error']
  const { status } = spawnSync('npm', args, {
    cwd: BENCH,
    stdio: ['ignore', 'ignore', 'inherit'],
    shell: process.platform === 'win32',
  })
  if (status !== 0) throw new Error('npm ci in bench/ failed; try it by hand to see why')
  fs.utimesSync(installed, new Date(), new Date())
}
