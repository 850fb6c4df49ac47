// Checks which part of src/ imports which, and that there are no import cycles. Tests may import everything.
//   node scripts/import-law.mjs [folder, default src]
import fs from 'node:fs'
import path from 'node:path'
import { pathToFileURL } from 'node:url'

/** Interfaces between the parts. `ports.ts` and `handler.ts` are what publish, work and maintenance share. */
const CONTRACTS = [
  'store.ts',
  'event-record.ts',
  'registry.ts',
  'unhandled.ts',
  'diagnosis.ts',
  'transaction.ts',
  'bus.ts',
  'handler.ts',
  'ports.ts',
  'service.ts',
  'publish-options.ts',
  'ambient.ts',
  'observe/logger.ts',
  'observe/event-fields.ts',
  'observe/metrics.ts',
  'observe/tracing.ts',
]
/** Parts that know each other only through contracts. */
const PARTS = [
  'publish/**',
  'work/**',
  'maintenance/**',
  'inbox/**',
  'observe/**',
  'stores/**',
  'transactions/**',
  'bus/**',
  'buses/**',
]
/** Files that put the parts together. */
const ASSEMBLY = ['runtime.ts', 'outbox.ts', 'outbox/**', 'relay.ts', 'index.ts']
const EVERYTHING_BELOW = ['core/**', ...CONTRACTS, ...PARTS, ...ASSEMBLY]

/**
 * The first row that matches a file lists what the file may import. `own` stands for the folder that the row names, so that
 * stores/postgres may import stores/postgres but not stores/memory. A row lists the npm packages that its files may import.
 */
const LAW = [
  { files: ['core/**'], may: ['own'], builtins: false },
  { files: CONTRACTS, may: ['core/**', ...CONTRACTS] },
  { files: ['observe/**'], may: ['core/**', ...CONTRACTS, 'own'] },
  { files: ['publish/**'], may: ['core/**', ...CONTRACTS, 'observe/**', 'own'] },
  { files: ['work/**'], may: ['core/**', ...CONTRACTS, 'observe/**', 'own'] },
  { files: ['maintenance/**'], may: ['core/**', ...CONTRACTS, 'observe/**', 'own'] },
  { files: ['inbox/**'], may: ['core/**', ...CONTRACTS, 'observe/**', 'own'] },
  {
    files: ['stores/*/**'],
    may: [
      'core/**',
      'store.ts',
      'event-record.ts',
      'registry.ts',
      'unhandled.ts',
      'diagnosis.ts',
      'transaction.ts',
      'ambient.ts',
      'stores/kit/**',
      'own',
    ],
  },
  { files: ['transactions/**'], may: ['core/**', 'transaction.ts', 'ambient.ts'] },
  { files: ['bus/**'], may: ['core/**', ...CONTRACTS, 'own'] },
  {
    files: ['buses/*/**'],
    may: ['core/**', 'bus.ts', 'publish-options.ts', 'bus/**', 'observe/logger.ts', 'own'],
  },
  { files: ASSEMBLY, may: EVERYTHING_BELOW },
  { files: ['testing/**'], may: [...EVERYTHING_BELOW, 'own'] },
  // No other part imports integrations, cli or dashboard. The NestJS module imports NestJS, which its users have installed.
  {
    files: ['integrations/nestjs.ts'],
    may: [...EVERYTHING_BELOW, 'integrations/on-event.ts'],
    packages: ['@nestjs/common', '@nestjs/core'],
  },
  { files: ['integrations/**'], may: [...EVERYTHING_BELOW, 'own'] },
  { files: ['cli/**'], may: [...EVERYTHING_BELOW, 'own'] },
  { files: ['dashboard/**'], may: [...EVERYTHING_BELOW, 'own'] },
]

/**
 * @param {string} src
 * @returns {string[]} one line per violation: `file:line  what is wrong`
 */
export function checkImportLaw(src) {
  const files = listSources(src)
  const imports = new Map(files.map((file) => [file, readImports(src, file)]))
  const problems = files.flatMap((file) => checkFile(file, imports.get(file)))
  return [...problems, ...checkCycles(imports)]
}

function checkFile(file, imports) {
  const match = findLaw(file)
  if (!match)
    return [`${file}:1  lies in no part that the import law knows; add it to scripts/import-law.mjs`]
  return imports.flatMap(({ specifier, target, line }) => {
    const reason = target === undefined ? checkPackage(specifier, match.law) : checkTarget(target, match)
    return reason ? [`${file}:${line}  ${reason}`] : []
  })
}

function checkPackage(specifier, law) {
  if (law.packages?.includes(specifier)) return undefined
  if (!specifier.startsWith('node:')) return `imports the package '${specifier}'; src/ imports no packages`
  return law.builtins === false
    ? `imports '${specifier}'; this part runs without Node's built-ins`
    : undefined
}

function checkTarget(target, { law, own }) {
  const allowed = law.may.some((pattern) => matches(pattern === 'own' ? own : pattern, target))
  return allowed ? undefined : `imports ${target}; allowed: ${law.may.join(', ').replace('own', own)}`
}

function findLaw(file) {
  for (const law of LAW) {
    const pattern = law.files.find((candidate) => matches(candidate, file))
    if (pattern) return { law, own: ownFolder(pattern, file) }
  }
  return undefined
}

function ownFolder(pattern, file) {
  const depth = pattern.split('/').length - 1
  return `${file.split('/').slice(0, depth).join('/')}/**`
}

function matches(pattern, file) {
  const source = pattern.replaceAll('.', '\\.').replaceAll('**', '.+').replaceAll('*', '[^/]+')
  return new RegExp(`^${source}$`).test(file)
}

// ── reading the imports ────────────────────────────────────────────────────────────────────────────────────

function listSources(src) {
  return fs
    .readdirSync(src, { recursive: true })
    .map((file) => file.split(path.sep).join('/'))
    .filter((file) => file.endsWith('.ts') && !file.endsWith('.test.ts') && !file.endsWith('.d.ts'))
    .sort()
}

const STATIC = /(?<=^|[\n;}])[ \t]*(?:import|export)\b(?:[^'"`;()]*?\bfrom)?\s*(['"])([^'"\n]+)\1/g
const DYNAMIC = /\bimport\s*\(\s*(['"])([^'"\n]+)\1/g

function readImports(src, file) {
  const text = blankComments(fs.readFileSync(path.join(src, file), 'utf8'))
  const found = []
  for (const match of text.matchAll(STATIC)) {
    found.push({ specifier: match[2], at: match.index + match[0].length })
  }
  for (const match of text.matchAll(DYNAMIC)) found.push({ specifier: match[2], at: match.index })
  return found.map(({ specifier, at }) => ({
    specifier,
    line: text.slice(0, at).split('\n').length,
    target: specifier.startsWith('.') ? resolve(file, specifier) : undefined,
  }))
}

function resolve(file, specifier) {
  return path.posix.join(path.posix.dirname(file), specifier).replace(/\.js$/, '.ts')
}

/** Replaces comments, whose examples contain imports, with spaces. Strings and line numbers stay the same. */
function blankComments(text) {
  const token = /\/\*[\s\S]*?\*\/|\/\/[^\n]*|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`/g
  return text.replace(token, (found) => (found.startsWith('/') ? found.replace(/[^\n]/g, ' ') : found))
}

// ── cycles of all imports, including type-only and dynamic imports ───────────────────────────────────────────

function checkCycles(imports) {
  return cyclicGroups(imports).map((group) => describeCycle(imports, group))
}

/** Names the shortest cycle through the first file of the group. */
function describeCycle(imports, group) {
  const [start] = group
  const paths = [[start]]
  for (const path of paths) {
    for (const { target } of imports.get(path.at(-1))) {
      if (target === start) {
        const { line } = imports.get(start).find((found) => found.target === (path[1] ?? start))
        return `${start}:${line}  import cycle: ${[...path, start].join(' → ')}`
      }
      if (group.includes(target) && !paths.some((known) => known.at(-1) === target))
        paths.push([...path, target])
    }
  }
  throw new Error(`no cycle through ${start}`)
}

/** Returns the sorted groups of files that import each other, directly or through other files. */
function cyclicGroups(imports) {
  const reachable = new Map([...imports.keys()].map((file) => [file, reachableFrom(file, imports)]))
  const grouped = new Set()
  const groups = []
  for (const [file, targets] of reachable) {
    if (grouped.has(file) || !targets.has(file)) continue
    const group = [...targets].filter((target) => reachable.get(target)?.has(file)).sort()
    for (const member of group) grouped.add(member)
    groups.push(group)
  }
  return groups
}

function reachableFrom(start, imports) {
  const reached = new Set()
  const waiting = [start]
  while (waiting.length > 0) {
    for (const { target } of imports.get(waiting.pop()) ?? []) {
      if (target === undefined || reached.has(target)) continue
      reached.add(target)
      waiting.push(target)
    }
  }
  return reached
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const src = process.argv[2] ?? path.resolve(import.meta.dirname, '..', 'src')
  const problems = checkImportLaw(src)
  for (const problem of problems) console.error(`src/${problem}`)
  process.exitCode = problems.length > 0 ? 1 : 0
}
