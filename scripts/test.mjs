// npm test: build, the whole suite on this Node, most of it again on Node 24, and a short fault campaign.
// Arguments go to vitest, without the campaign: `npm test -- src/core`. The last line counts everything.
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { busesOf, countSuites, countThemes, integrationsOf, matrixOf } from './matrix.mjs'
import { environmentFor, findNode24 } from './node-24.mjs'

const root = path.resolve(import.meta.dirname, '..')
const vitest = path.join(root, 'node_modules', 'vitest', 'vitest.mjs')
const total = { passed: 0, failed: 0, skipped: 0 }
const failures = []
const suites = new Map()
const themes = []

if (run(process.execPath, [path.join(root, 'scripts', 'build.mjs')]) === 0) {
  const node24 = findNode24()
  const isTwice = node24 !== undefined && node24 !== process.execPath
  runSuite(process.execPath, isTwice ? 'first' : 'only')
  if (node24 === undefined) missNode24()
  else if (isTwice) runSuite(node24, 'second')
  if (process.argv.length === 2) runCampaign()
} else {
  console.error('The build failed: no tests were run.')
  total.failed++
}

printMatrix()
if (failures.length > 0) console.log(`\nFailed:\n${failures.join('\n')}\n`)
console.log(`${total.passed} passed, ${total.failed} failed, ${total.skipped} skipped`)
process.exitCode = total.failed > 0 ? 1 : 0

function runSuite(node, which) {
  const { stdout } = spawnSync(node, ['--version'], { encoding: 'utf8' })
  console.log(`\n── Node ${stdout.trim()} ──`)
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'aftercommit-test-'))
  const report = path.join(folder, 'report.json')
  const errors = path.join(folder, 'errors.txt')
  const reporters = ['--reporter=default', '--reporter=json', `--outputFile.json=${report}`]
  reporters.push(`--reporter=${path.join(root, 'scripts', 'stray-errors.mjs')}`)
  const args = [vitest, 'run', ...reporters, ...process.argv.slice(2)]
  const status = run(node, args, { AFTERCOMMIT_RUN: which, STRAY_ERRORS: errors })
  count(report, status, stdout.trim())
  if (fs.existsSync(errors))
    failures.push(`- Node ${stdout.trim()}, outside of any test:\n  ${fs.readFileSync(errors, 'utf8')}`)
  fs.rmSync(folder, { recursive: true, force: true })
}

/** By itself: its processes need their share of the machine. */
function runCampaign() {
  console.log('\n── faults ──')
  // Always the same plan: a failure is then of the change, or can be repeated. Others come by `npm run faults`.
  const plan = ['--minutes', '2', '--seed', '999915286']
  const status = run(process.execPath, [path.join(root, 'faults', 'run.js'), ...plan])
  if (status === 0) total.passed++
  else {
    total.failed++
    failures.push('- the fault campaign: see above')
  }
}

/** A file that could not be loaded counts as one failure, and so does an error outside of any test. */
function count(report, status, version) {
  const result = fs.existsSync(report) ? JSON.parse(fs.readFileSync(report, 'utf8')) : undefined
  const broken = (result?.testResults ?? []).filter(
    (file) => file.status === 'failed' && !file.assertionResults.some((test) => test.status === 'failed'),
  )
  const failed = (result?.numFailedTests ?? 0) + broken.length
  total.passed += result?.numPassedTests ?? 0
  total.skipped += (result?.numPendingTests ?? 0) + (result?.numTodoTests ?? 0)
  total.failed += failed === 0 && status !== 0 ? 1 : failed
  for (const file of result?.testResults ?? []) noteFailures(file, version)
  suites.set(version, countSuites(result?.testResults ?? []))
  themes.push(countThemes(result?.testResults ?? []))
}

/** With the whole suite an empty cell is a failure; with a part of it there are many. */
function printMatrix() {
  const integrations = fs
    .readdirSync(path.join(root, 'src', 'transactions'))
    .filter((file) => file.endsWith('.ts') && !file.endsWith('.test.ts'))
    .map((file) => file.replace(/\.ts$/, ''))
  const matrices = [matrixOf(suites), integrationsOf(suites, integrations), busesOf(themes)]
  for (const { lines } of matrices) if (lines.length > 0) console.log(`\n${lines.join('\n')}\n`)
  const empty = matrices.flatMap((matrix) => matrix.empty)
  if (process.argv.length > 2 || empty.length === 0) return
  failures.push(...empty.map((cell) => `- the conformance suite was not run: ${cell}`))
  total.failed += empty.length
}

/** Repeated below both runs: a failure of the first one is thousands of lines above the end. */
function noteFailures(file, version) {
  const name = path.relative(root, file.name)
  const failed = file.assertionResults.filter((test) => test.status === 'failed')
  for (const test of failed) {
    failures.push(`- Node ${version}, ${name}: ${test.fullName}\n  ${test.failureMessages.join('\n  ')}`)
  }
  if (failed.length === 0 && file.status === 'failed')
    failures.push(`- Node ${version}, ${name}: ${file.message}`)
}

function missNode24() {
  console.error('\nSKIPPED: the run on Node 24. Its binary is not among the npm packages of this platform.')
  if (process.env.CI) total.failed++
}

function run(node, args, env = {}) {
  const { status } = spawnSync(node, args, {
    cwd: root,
    env: { ...environmentFor(node), ...env },
    stdio: ['ignore', 'inherit', 'inherit'],
  })
  return status ?? 1
}
