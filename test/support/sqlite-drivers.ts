import fs from 'node:fs'
import { createRequire } from 'node:module'
import os from 'node:os'
import path from 'node:path'
import type { SqliteDatabase } from '../../src/stores/sqlite/index.js'

export interface SqliteDriver {
  readonly name: string
  open(file: string): SqliteDatabase
}

type Constructor = new (file: string) => SqliteDatabase

const NODE_MAJOR = Number(process.versions.node.split('.')[0])
const require = createRequire(import.meta.url)
/** better-sqlite3 13 needs a newer Node than the library does, so it lies beside the Node that it runs on. */
const binaries = createRequire(new URL('../../scripts/binaries/package.json', import.meta.url))

/** Those that this Node has. On Node 24 all three must be there; what is missing is said loudly, and fails in CI. */
export function sqliteDrivers(): readonly SqliteDriver[] {
  const drivers = found('libsql', () => require('libsql'))
  // The binary of better-sqlite3 crashes an older Node, so it is not even loaded there.
  if (NODE_MAJOR < 22) return drivers
  return [
    ...drivers,
    ...found('node:sqlite', () => require('node:sqlite').DatabaseSync),
    ...found('better-sqlite3', () => binaries('better-sqlite3')),
  ]
}

function found(name: string, load: () => Constructor): SqliteDriver[] {
  try {
    return [driverOf(name, load())]
  } catch (error) {
    if (process.env.CI) throw error
    console.error(`SKIPPED: SQLite by ${name}, which cannot be loaded: ${error}. Run: npm run setup`)
    return []
  }
}

function driverOf(name: string, Database: Constructor): SqliteDriver {
  return { name, open: (file) => new Database(file) }
}

/** A folder of its own for database files. */
export function sqliteFolder(): { file(name: string): string; remove(): void } {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'aftercommit-sqlite-'))
  return {
    file: (name) => path.join(folder, name),
    remove: () => fs.rmSync(folder, { recursive: true, force: true }),
  }
}
