// Servers that come as packages of Debian: where their programs are, and how to get them.
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'

const FOLDERS = [
  ...(process.env.PATH ?? '').split(path.delimiter),
  '/usr/sbin',
  '/usr/bin',
  '/usr/local/sbin',
]

/** The path of the first of these programs that is on this machine. */
export function findProgram(...names) {
  for (const name of names) {
    for (const folder of FOLDERS) {
      if (folder && fs.existsSync(path.join(folder, name))) return path.join(folder, name)
    }
  }
  return undefined
}

/** Time that another installation on this machine may take. */
const LOCK_TIMEOUT_MS = 240_000

/** Installs a package if the user is root on Debian. Prints one line that says so. */
export function installPackage(title, name) {
  if (process.getuid?.() !== 0 || !findProgram('apt-get')) return
  console.error(`[services] ${title} is not on this machine: installing the Debian package ${name}`)
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' }
  // Another run may be installing something at this moment.
  const wait = ['-o', 'DPkg::Lock::Timeout=240', '-o', 'Acquire::Retries=3']
  for (const args of [['update'], ['install', '-y', '--no-install-recommends', name]]) {
    const { status, stderr } = runUnlocked([...wait, ...args], env)
    if (status !== 0) throw new Error(`apt-get ${args[0]} failed: ${String(stderr).trim().slice(-500)}`)
  }
}

/** Repeats the command while another process updates the package lists, because apt-get does not wait for their lock. */
function runUnlocked(args, env) {
  const until = Date.now() + LOCK_TIMEOUT_MS
  for (;;) {
    const result = spawnSync('apt-get', args, { env, encoding: 'utf8', timeout: 300_000 })
    const isLocked = result.status !== 0 && /Could not get lock|Unable to lock/.test(result.stderr)
    if (!isLocked || Date.now() > until) return result
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1_000)
  }
}
