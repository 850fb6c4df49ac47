import fs from 'node:fs'
import { createRequire } from 'node:module'
import path from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { UsageError } from './errors.js'

export interface LoadedDriver {
  readonly name: string
  /** Of the package; null when it does not say. */
  readonly version: string | null
  readonly modules: readonly Record<string, unknown>[]
}

let loaded: LoadedDriver | undefined

/** The one that was loaded last, for those who tell about it. */
export function loadedDriver(): Pick<LoadedDriver, 'name' | 'version'> {
  return loaded ?? { name: 'none', version: null }
}

/**
 * The first of these packages that the project in the current folder has, or else one beside this package. Each name may
 * need others with it: `['redis']`, `['@nats-io/transport-node', '@nats-io/jetstream']`.
 */
export async function loadDriver(
  what: string,
  choices: readonly (readonly string[])[],
): Promise<LoadedDriver> {
  for (const names of choices) {
    const files = names.map(locate)
    if (files.some((file) => file === undefined)) continue
    const modules = await Promise.all(
      files.map((file) => import(String(file)) as Promise<Record<string, unknown>>),
    )
    loaded = { name: String(names[0]), version: versionOf(String(names[0]), String(files[0])), modules }
    return loaded
  }
  const packages = choices.map((names) => names.filter((name) => !name.startsWith('node:')).map(packageOf))
  const install = packages
    .filter((names) => names.length > 0)
    .map((names) => `npm install ${names.join(' ')}`)
    .join(', or ')
  throw new UsageError(`${what} needs a driver, which is not installed here: ${install}.`)
}

/** Without the path inside of it: npm would take `mysql2/promise` for somebody's repository. */
function packageOf(name: string): string {
  return name
    .split('/')
    .slice(0, name.startsWith('@') ? 2 : 1)
    .join('/')
}

/** From the package.json above the file that was found. */
function versionOf(name: string, file: string): string | null {
  if (!file.startsWith('file:')) return process.versions.node
  const wanted = packageOf(name)
  for (let folder = path.dirname(fileURLToPath(file)); ; folder = path.dirname(folder)) {
    try {
      const about = JSON.parse(fs.readFileSync(path.join(folder, 'package.json'), 'utf8'))
      if (about.name === wanted) return String(about.version)
    } catch {}
    if (folder === path.dirname(folder)) return null
  }
}

function locate(name: string): string | undefined {
  if (name.startsWith('node:')) return isBuiltin(name) ? name : undefined
  for (const from of [path.join(process.cwd(), 'x.js'), import.meta.url]) {
    try {
      return pathToFileURL(createRequire(from).resolve(name)).href
    } catch {}
  }
  return undefined
}

function isBuiltin(name: string): boolean {
  try {
    createRequire(import.meta.url).resolve(name)
    return process.getBuiltinModule?.(name) !== undefined
  } catch {
    return false
  }
}

/** A class or function of a module, whether it is one of ESM or of CommonJS. */
export function member<T>(module: Record<string, unknown> | undefined, name: string): T {
  const inner = module?.default as Record<string, unknown> | undefined
  return (module?.[name] ?? inner?.[name] ?? inner) as T
}
