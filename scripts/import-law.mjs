// The import law: which part of src/ may import which. Tests are free.
//   node scripts/import-law.mjs [folder, default src]
import fs from 'node:fs'
import path from 'node:path'
import { pathToFileURL } from 'node:url'

const CONTRACTS = [
  'store.ts',
  'event-record.ts',
  'registry.ts',
  'unhandled.ts',
  'diagnosis.ts',
  'transaction.ts',
  'bus.ts',
  'handler.ts',
  'ambient.ts',
  'observe/logger.ts',
  'observe/metrics.ts',
  'observe/tracing.ts',
]
const PARTS = [
  'dispatcher/**',
  'poller/**',
  'inbox/**',
  'observe/**',
  'stores/**',
  'transactions/**',
  'bus/**',
  'buses/**',
]
const ASSEMBLY = ['outbox.ts', 'outbox/**', 'relay.ts', 'index.ts']
const EVERYTHING_BELOW = ['core/**', ...CONTRACTS, ...PARTS, ...ASSEMBLY]

/**
 * The first row that matches a file is its law. `own` stands for the folder that the row names, so that
 * stores/postgres may import stores/postgres but not stores/memory. Packages from npm are for those that name them.
 */
const LAW = [
  { files: ['core/**'], may: ['own'], builtins: false },
  { files: CONTRACTS, may: ['core/**', ...CONTRACTS] },
  { files: ['observe/**'], may: ['core/**', ...CONTRACTS, 'own'] },
  { files: ['dispatcher/**'], may: ['core/**', ...CONTRACTS, 'observe/**', 'own'] },
  { files: ['poller/**'], may: ['core/**', ...CONTRACTS, 'observe/**', 'dispatcher/**', 'own'] },
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
      'own',
    ],
  },
  { files: ['transactions/**'], may: ['core/**', ...CONTRACTS] },
  { files: ['bus/**'], may: ['core/**', ...CONTRACTS, 'own'] },
  { files: ['buses/*/**'], may: ['core/**', 'bus.ts', 'bus/**', 'observe/logger.ts', 'own'] },
  { files: ASSEMBLY, may: EVERYTHING_BELOW },
  { files: ['testing/**'], may: [...EVERYTHING_BELOW, 'own'] },
  // Nothing imports these three. A NestJS module cannot be written without NestJS: whoever opens that door has it.
  {
    files: ['integrations/nestjs.ts'],
    may: [...EVERYTHING_BELOW, 'integrations/on-event.ts'],
    packages: ['@nestjs/common', '@nestjs/core'],
  },
  { files: ['integrations/**'], may: [...EVERYTHING_BELOW, 'own'] },
  { files: ['cli/**'], may: [...EVERYTHING_BELOW, 'own'] },
  { files: ['dashboard/**'], may: [...EVERYTHING_BELOW, 'own'] },
]

/** @returns {string[]} one line for each violation: `file:line  what is wrong` */
export function checkImportLaw(src) {
  const files = listSources(src)
  const imports = new Map(files.map((file) => [file, readImports(src, file)]))
  const problems = files.flatMap((file) => checkFile(file, imports.get(file)))
  return [...problems, ...findCycles(imports)]
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

const STATIC =
  /(?<=^|[\n;}])[ \t]*(?:import|export)\b(\s+type\b(?!\s+from\b|\s*,))?(?:[^'"`;()]*?\bfrom)?\s*(['"])([^'"\n]+)\2/g
const DYNAMIC = /\bimport\s*\(\s*(['"])([^'"\n]+)\1/g

function readImports(src, file) {
  const text = blankComments(fs.readFileSync(path.join(src, file), 'utf8'))
  const found = []
  for (const match of text.matchAll(STATIC)) {
    found.push({ specifier: match[3], at: match.index + match[0].length, value: match[1] === undefined })
  }
  // A dynamic import, or the type import('…'), obeys the law but makes no cycle at load time.
  for (const match of text.matchAll(DYNAMIC))
    found.push({ specifier: match[2], at: match.index, value: false })
  return found.map(({ specifier, at, value }) => ({
    specifier,
    value,
    line: text.slice(0, at).split('\n').length,
    target: specifier.startsWith('.') ? resolve(file, specifier) : undefined,
  }))
}

function resolve(file, specifier) {
  return path.posix.join(path.posix.dirname(file), specifier).replace(/\.js$/, '.ts')
}

/** Comments become spaces (examples in them import things); strings stay, lines keep their numbers. */
function blankComments(text) {
  const token = /\/\*[\s\S]*?\*\/|\/\/[^\n]*|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`/g
  return text.replace(token, (found) => (found.startsWith('/') ? found.replace(/[^\n]/g, ' ') : found))
}

// ── cycles: of value imports only, since types are gone when the program loads ─────────────────────────────

function findCycles(imports) {
  const cycles = []
  const done = new Set()
  const walk = (file, trail) => {
    const start = trail.findIndex((step) => step.file === file)
    if (start >= 0) {
      const round = trail.slice(start)
      const names = [...round.map((step) => step.file), file].join(' → ')
      cycles.push(`${file}:${round[0].line}  import cycle: ${names}`)
      return
    }
    if (done.has(file)) return
    for (const { target, value, line } of imports.get(file) ?? []) {
      if (value && target !== undefined) walk(target, [...trail, { file, line }])
    }
    done.add(file)
  }
  for (const file of imports.keys()) walk(file, [])
  return cycles
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const src = process.argv[2] ?? path.resolve(import.meta.dirname, '..', 'src')
  const problems = checkImportLaw(src)
  for (const problem of problems) console.error(`src/${problem}`)
  process.exitCode = problems.length > 0 ? 1 : 0
}
