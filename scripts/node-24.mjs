// Where the Node 24 binary of scripts/binaries is, if it is there.
import fs from 'node:fs'
import { createRequire } from 'node:module'
import path from 'node:path'

/** @returns {string | undefined} */
export function findNode24() {
  if (Number(process.versions.node.split('.')[0]) >= 24) return process.execPath
  try {
    const require = createRequire(new URL('./binaries/package.json', import.meta.url))
    const home = path.dirname(require.resolve(`node-${process.platform}-${process.arch}/package.json`))
    const binary = path.join(home, 'bin', 'node')
    return fs.existsSync(binary) ? binary : undefined
  } catch {
    return undefined
  }
}

/** The environment in which `node` means that binary, for child processes too. */
export function environmentFor(binary) {
  return { ...process.env, PATH: `${path.dirname(binary)}${path.delimiter}${process.env.PATH ?? ''}` }
}
