// Bugs that the checker must find: patches to a copy of the built package, never switches in it.
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import ackBeforeCommit from './ack-before-commit.js'
import claimWithoutLeaseCheck from './claim-without-lease-check.js'
import floorWithoutSweep from './floor-without-sweep.js'
import hotBeforeCommit from './hot-before-commit.js'
import leaseNeverRenewed from './lease-never-renewed.js'
import renewRevives from './renew-revives.js'
import retryForgetsHandledBy from './retry-forgets-handled-by.js'
import runGoesOnAfterFailure from './run-goes-on-after-failure.js'
import scriptsDoNotRegister from './scripts-do-not-register.js'
import settleWithoutOwner from './settle-without-owner.js'

const ROOT = path.resolve(import.meta.dirname, '../..')

/**
 * By name: `patches` with the `file` in dist/, the exact `text` and its `replacement`; the `store`, `scenario` and
 * `seed` under which it shows soon; and the `invariant` that it must violate.
 */
export const planted = Object.fromEntries(
  [
    settleWithoutOwner,
    claimWithoutLeaseCheck,
    hotBeforeCommit,
    leaseNeverRenewed,
    floorWithoutSweep,
    ackBeforeCommit,
    renewRevives,
    retryForgetsHandledBy,
    runGoesOnAfterFailure,
    scriptsDoNotRegister,
  ].map((bug) => [bug.name, bug]),
)

/**
 * Copies the built package into a temporary folder and applies the patches of that bug; without a name the copy is left
 * as it is. Throws when a text is not there exactly once, so that no patch can rot in silence.
 */
export function plant(name) {
  const bug = name === undefined ? { patches: [] } : planted[name]
  if (!bug) throw new Error(`no planted bug ${name}; there are ${Object.keys(planted).join(', ')}`)
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'aftercommit-planted-'))
  const remove = () => fs.rmSync(dir, { recursive: true, force: true })
  try {
    fs.cpSync(path.join(ROOT, 'dist'), path.join(dir, 'dist'), { recursive: true })
    fs.copyFileSync(path.join(ROOT, 'package.json'), path.join(dir, 'package.json'))
    fs.symlinkSync(path.join(ROOT, 'node_modules'), path.join(dir, 'node_modules'), 'dir')
    for (const patch of bug.patches) apply(dir, patch)
  } catch (error) {
    remove()
    throw error
  }
  return { dir, remove }
}

function apply(dir, { file, text, replacement }) {
  const target = path.join(dir, 'dist', file)
  const parts = fs.readFileSync(target, 'utf8').split(text)
  if (parts.length !== 2) {
    throw new Error(`the text to be replaced is ${parts.length - 1} times in dist/${file}, not once: ${text}`)
  }
  fs.writeFileSync(target, parts.join(replacement))
}
