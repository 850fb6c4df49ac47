// Before an example starts: installs the dependencies if nobody has, builds aftercommit if src is newer, compiles the example.
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'

const root = path.resolve(import.meta.dirname, '..')

const tsc = path.join(root, 'node_modules', 'typescript', 'bin', 'tsc')

// Only where there is nothing at all: installing again would pull the packages from under those who are running.
if (!fs.existsSync(tsc)) run(path.join(root, 'scripts', 'setup.mjs'))
if (isStale(path.join(root, 'src'), path.join(root, 'dist', 'index.js')))
  run(path.join(root, 'scripts', 'build.mjs'))
run(tsc, '-p', process.cwd())

/** Built never, or before the last change. */
function isStale(source, built) {
  if (!fs.existsSync(built)) return true
  const { mtimeMs } = fs.statSync(built)
  return fs
    .readdirSync(source, { recursive: true })
    .some((file) => fs.statSync(path.join(source, file)).mtimeMs > mtimeMs)
}

function run(...command) {
  const { status } = spawnSync(process.execPath, command, { stdio: ['ignore', 'inherit', 'inherit'] })
  if (status !== 0) process.exit(status ?? 1)
}
