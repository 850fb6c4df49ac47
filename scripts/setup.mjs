// Installs the dependencies when they are missing or not those of the lock file. Node built-ins only.
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'

const root = path.resolve(import.meta.dirname, '..')

install(root, 'the development dependencies')
install(
  path.join(root, 'scripts', 'binaries'),
  'PostgreSQL 14, Node 24, better-sqlite3 and a client of Kafka for the tests',
)

function install(folder, what) {
  if (isInstalled(folder)) return
  console.log(`Installing ${what} (npm ci) …`)
  const { status } = spawnSync('npm', ['ci', '--no-audit', '--no-fund', '--loglevel=error'], {
    cwd: folder,
    stdio: ['ignore', 'inherit', 'inherit'],
    shell: process.platform === 'win32',
  })
  if (status !== 0) process.exit(status ?? 1)
}

/** npm writes node_modules/.package-lock.json last: it lists what is really there. */
function isInstalled(folder) {
  const wanted = readPackages(path.join(folder, 'package-lock.json'))
  const present = readPackages(path.join(folder, 'node_modules', '.package-lock.json'))
  if (!wanted || !present) return false
  return Object.entries(wanted).every(
    ([where, entry]) => where === '' || !isNeeded(entry) || present[where]?.version === entry.version,
  )
}

/** Optional packages are binaries for one platform or another: needed are those for this one. */
function isNeeded({ optional, os, cpu, libc }) {
  return !optional || (os?.includes(process.platform) && cpu?.includes(process.arch) && !libc)
}

function readPackages(lockFile) {
  try {
    return JSON.parse(fs.readFileSync(lockFile, 'utf8')).packages
  } catch {
    return undefined
  }
}
