// npm run mutate -- src/work: changes one operator, condition or call at a time in a copy of the project, and runs the
// tests. A mutant that no test notices points to a gap in the tests.
//   --project NAME   vitest project that runs against each mutant; may be repeated (default: unit)
//   --tests PATTERN  runs only test files whose path contains the pattern; may be repeated
//   --limit N        tries N mutants, chosen at random (default: all)
//   --seed N         seed of that choice (default: 1)
import { spawn } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { parseAst } from 'vite'

const root = path.resolve(import.meta.dirname, '..')
/** A mutant that makes a test hang is stopped after this many times the duration of the unchanged code. */
const PATIENCE = 4

const SWAPS = {
  '<': '>=',
  '>': '<=',
  '<=': '>',
  '>=': '<',
  '===': '!==',
  '!==': '===',
  '+': '-',
  '-': '+',
  '*': '/',
  '/': '*',
  '&&': '||',
  '||': '&&',
  '??': '&&',
}

/** Returns every mutant of a TypeScript source: `{ start, end, text }` replaces that part of the source. */
export function mutantsOf(source) {
  const mutants = []
  const replace = (node, text) => mutants.push({ start: node.start, end: node.end, text })
  const visit = (node) => {
    if (node.type.startsWith('TS') && !hasValue(node)) return
    if (SWAPS[node.operator] && node.left && node.right && !isText(node.left) && !isText(node.right)) {
      const at = source.indexOf(node.operator, node.left.end)
      mutants.push({ start: at, end: at + node.operator.length, text: SWAPS[node.operator] })
    }
    if (node.type === 'UnaryExpression' && node.operator === '!') replace(node, sourceOf(node.argument))
    if (node.type === 'Literal' && typeof node.value === 'boolean') replace(node, String(!node.value))
    if (node.type === 'Literal' && typeof node.value === 'number') replace(node, String(node.value + 1))
    if (node.type === 'AwaitExpression') replace(node, `void ${sourceOf(node.argument)}`)
    if (node.type === 'IfStatement' || node.type === 'ConditionalExpression') {
      replace(node.test, 'true')
      replace(node.test, 'false')
    }
    if (node.type === 'ExpressionStatement' && isEffect(node.expression)) replace(node, ';')
    for (const child of childrenOf(node)) visit(child)
  }
  const sourceOf = (node) => source.slice(node.start, node.end)
  visit(parseAst(source, { lang: 'ts' }))
  return mutants.sort((a, b) => a.start - b.start)
}

/** Whether a TypeScript node has a run-time value: `x as T`, `x!`, `x satisfies T`. */
function hasValue(node) {
  return ['TSAsExpression', 'TSNonNullExpression', 'TSSatisfiesExpression'].includes(node.type)
}

function isText(node) {
  return node.type === 'TemplateLiteral' || (node.type === 'Literal' && typeof node.value === 'string')
}

function isEffect(node) {
  return ['CallExpression', 'AwaitExpression', 'AssignmentExpression', 'UpdateExpression'].includes(node.type)
}

function* childrenOf(node) {
  for (const [key, value] of Object.entries(node)) {
    if (key === 'typeAnnotation' && node.type !== 'TSAsExpression') continue
    for (const child of Array.isArray(value) ? value : [value]) if (child?.type) yield child
  }
}

// ── running ────────────────────────────────────────────────────────────────────────────────────────────────

async function main() {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      project: { type: 'string', multiple: true, default: ['unit'] },
      tests: { type: 'string', multiple: true, default: [] },
      limit: { type: 'string' },
      seed: { type: 'string', default: '1' },
    },
  })
  if (positionals.length === 0) throw new Error('Name a folder or a file: npm run mutate -- src/core')
  const copy = makeCopy()
  try {
    const all = positionals.flatMap(sourcesIn).flatMap((file) => {
      const source = fs.readFileSync(path.join(root, file), 'utf8')
      return mutantsOf(source).map((mutant) => ({ file, source, ...mutant }))
    })
    const chosen = values.limit ? sample(all, Number(values.limit), Number(values.seed)) : all
    const args = ['run', '--bail=1', '--reporter=dot', ...values.tests]
    for (const project of values.project) args.push('--project', project)
    const first = await runTests(copy, args, 3_600_000)
    if (first.status !== 0) throw new Error(`The tests fail without a mutant:\n${first.output.slice(-2_000)}`)
    await tryAll(copy, args, chosen, first.ms * PATIENCE + 5_000)
  } finally {
    fs.rmSync(copy, { recursive: true, force: true })
  }
}

async function tryAll(copy, args, mutants, limitMs) {
  const survivors = []
  for (const [done, mutant] of mutants.entries()) {
    const { file, source, start, end, text } = mutant
    const target = path.join(copy, file)
    fs.writeFileSync(target, source.slice(0, start) + text + source.slice(end))
    const { status } = await runTests(copy, args, limitMs)
    fs.writeFileSync(target, source)
    if (status === 0) {
      const line = source.slice(0, start).split('\n').length
      survivors.push(`${file}:${line}  ${oneLine(source.slice(start, end))}  →  ${oneLine(text)}`)
    }
    process.stderr.write(`\r${done + 1} of ${mutants.length} mutants, ${survivors.length} survived `)
  }
  process.stderr.write('\n')
  for (const survivor of survivors) console.log(survivor)
  const killed = mutants.length - survivors.length
  console.log(
    `${killed} of ${mutants.length} mutants killed (${Math.round((100 * killed) / mutants.length)} %)`,
  )
}

/** Copies the sources and tests. Dependencies and build output are links. */
function makeCopy() {
  fs.mkdirSync(path.join(root, '.tmp'), { recursive: true })
  const copy = fs.mkdtempSync(path.join(root, '.tmp', 'mutate-'))
  const links = ['node_modules', 'dist']
  for (const name of fs.readdirSync(root)) {
    if (name === '.tmp' || name === '.git') continue
    if (links.includes(name)) fs.symlinkSync(path.join(root, name), path.join(copy, name))
    else fs.cpSync(path.join(root, name), path.join(copy, name), { recursive: true, verbatimSymlinks: true })
  }
  return copy
}

function sourcesIn(given) {
  const full = path.resolve(root, given)
  const files = fs.statSync(full).isDirectory()
    ? fs.readdirSync(full, { recursive: true }).map((file) => path.join(full, file))
    : [full]
  return files
    .filter((file) => file.endsWith('.ts') && !/\.(test|d)\.ts$/.test(file))
    .map((file) => path.relative(root, file))
    .sort()
}

function runTests(cwd, args, limitMs) {
  return new Promise((resolve) => {
    const began = performance.now()
    const vitest = path.join(root, 'node_modules', 'vitest', 'vitest.mjs')
    const child = spawn(process.execPath, [vitest, ...args], { cwd, detached: true })
    let output = ''
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (text) => (output += text))
    const timer = setTimeout(() => process.kill(-child.pid, 'SIGKILL'), limitMs)
    child.on('close', (status) => {
      clearTimeout(timer)
      resolve({ status, output, ms: performance.now() - began })
    })
  })
}

/** Chooses `count` items with a seeded generator, and keeps their order. */
function sample(items, count, seed) {
  let state = seed
  const random = () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return state / 2 ** 32
  }
  const keyed = items.map((item, at) => ({ item, at, key: random() })).sort((a, b) => a.key - b.key)
  const chosen = keyed.slice(0, count).sort((a, b) => a.at - b.at)
  return chosen.map(({ item }) => item)
}

function oneLine(text) {
  const line = text.replace(/\s+/g, ' ')
  return line.length > 60 ? `${line.slice(0, 57)}…` : line
}

if (process.argv[1] === import.meta.filename) await main()
