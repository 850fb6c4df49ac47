// npm run check: everything but the tests. One line for each check; a failure shows what it said.
import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'

const root = path.resolve(import.meta.dirname, '..')
const temporary = fs.mkdtempSync(path.join(os.tmpdir(), 'aftercommit-check-'))
const { name, exports } = JSON.parse(fs.readFileSync(path.join(root, 'package.json'), 'utf8'))
let tarball = ''

const CHECKS = {
  'format and lint': () =>
    tool('@biomejs/biome/bin/biome', 'check', '--error-on-warnings', '--max-diagnostics=200', '.'),
  types: () => tool('typescript/bin/tsc', '--noEmit'),
  'import law': () => script('import-law.mjs'),
  exports: () => script('check-exports.mjs'),
  build: () => script('build.mjs'),
  pack,
  publint: () => tool('publint/src/cli.js', 'run', tarball, '--strict'),
  'are the types wrong': () => tool('@arethetypeswrong/cli/dist/index.js', tarball, '--profile', 'esm-only'),
  'installed tarball': smoke,
}

/** Without these there is nothing for the later checks to look at. */
const NEEDED = ['build', 'pack']

let failures = 0
try {
  for (const [title, check] of Object.entries(CHECKS)) {
    const failed = runCheck(title, check)
    if (failed) failures++
    if (failed && NEEDED.includes(title)) break
  }
} finally {
  fs.rmSync(temporary, { recursive: true, force: true })
}
console.log(failures === 0 ? 'All checks passed' : `${failures} of the checks failed`)
process.exitCode = failures === 0 ? 0 : 1

function runCheck(title, check) {
  const start = performance.now()
  const { status, output } = check()
  const seconds = ((performance.now() - start) / 1000).toFixed(1)
  console.log(`${status === 0 ? 'ok  ' : 'FAIL'}  ${title.padEnd(20)} ${seconds.padStart(5)} s`)
  const warned = /^warning: /m.test(output)
  if (status !== 0 || warned) console.log(output.trimEnd().replace(/^/gm, '      '))
  return status !== 0
}

function pack() {
  const result = npm(root, 'pack', '--ignore-scripts', '--pack-destination', temporary)
  tarball = path.join(
    temporary,
    fs.readdirSync(temporary).find((file) => file.endsWith('.tgz')) ?? 'missing.tgz',
  )
  return result
}

/** Installs the tarball as a user would, and opens every door with import and with require. */
function smoke() {
  const app = path.join(temporary, 'app')
  fs.mkdirSync(app)
  fs.writeFileSync(path.join(app, 'package.json'), '{ "private": true }\n')
  const installed = npm(app, 'install', '--offline', '--no-audit', '--no-fund', tarball)
  if (installed.status !== 0) return installed

  linkPeers(app)
  const doors = Object.keys(exports).map((subpath) => path.posix.join(name, subpath))
  const modules = doors.filter((door) => !door.endsWith('.json'))
  const required = doors.map((door) => `require('${door}')`).join('\n')
  const imported = modules.map((door) => `await import('${door}')`).join('\n')
  fs.writeFileSync(path.join(app, 'required.cjs'), required)
  fs.writeFileSync(path.join(app, 'imported.mjs'), imported)
  const first = run(process.execPath, ['required.cjs'], app)
  return first.status === 0 ? run(process.execPath, ['imported.mjs'], app) : first
}

/** An application that opens the door of NestJS has NestJS. */
function linkPeers(app) {
  for (const peer of ['@nestjs', 'reflect-metadata', 'rxjs']) {
    fs.symlinkSync(path.join(root, 'node_modules', peer), path.join(app, 'node_modules', peer), 'dir')
  }
}

function tool(bin, ...args) {
  return run(process.execPath, [path.join(root, 'node_modules', bin), ...args], root)
}

function script(file) {
  return run(process.execPath, [path.join(root, 'scripts', file)], root)
}

function npm(cwd, ...args) {
  return run('npm', args, cwd)
}

function run(command, args, cwd) {
  const shell = process.platform === 'win32' && command === 'npm'
  const options = { cwd, shell, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'], maxBuffer: 1 << 28 }
  const { status, stdout, stderr, error } = spawnSync(command, args, options)
  return { status: status ?? 1, output: `${stdout ?? ''}${stderr ?? ''}${error ?? ''}` }
}
