import { spawn } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { stripVTControlCharacters } from 'node:util'
import { expect, it, onTestFinished } from 'vitest'
import { expectGolden, inTerminal } from '../support/pty.js'
import { MAIN, run, start } from './kit.js'

/** Nobody listens there. */
const NOWHERE = 'postgres://me:hidden@127.0.0.1:1/x'

it('shows what it can do', async () => {
  const [help, one, version, typo] = await Promise.all(
    [['--help'], ['help', 'retry'], ['--version'], ['lst']].map((args) => start(args).ended),
  )
  expect(help).toMatchObject({
    code: 0,
    stderr: '',
    stdout: expect.stringContaining('\n  list       shows events'),
  })
  expect(one?.stdout).toContain('\nUsage: aftercommit retry (ID | --dead | --type TYPE) [options]\n')
  expect(version?.stdout).toMatch(/^\d+\.\d+\.\d+\n$/)
  expect(typo).toEqual({
    code: 2,
    stdout: '',
    stderr: "aftercommit: There is no command 'lst'. Did you mean list? See aftercommit --help.\n",
  })
})

it('says with an exit code and one line that there is no database, or that it cannot be reached', async () => {
  const [none, away] = await Promise.all([
    start(['list']).ended,
    start(['list'], { DATABASE_URL: NOWHERE }).ended,
  ])
  expect(none).toEqual({
    code: 2,
    stdout: '',
    stderr: 'aftercommit: No database. Give --database URL, or set OUTBOX_DB_URL or DATABASE_URL.\n',
  })
  expect(away).toMatchObject({ code: 1, stdout: '' })
  expect(away?.stderr).toMatch(
    /^aftercommit: The server cannot be reached: .*127\.0\.0\.1:1\. Is the address right[^\n]*\n$/,
  )
})

const REFUSALS: readonly [args: string[], code: number, line: RegExp][] = [
  [['list', '--statsu', 'dead'], 2, /There is no option '--statsu'\. Did you mean --status\?/],
  [['list', '--status', 'broken'], 2, /--status must be/],
  [['list', '--limit', '0'], 2, /--limit must be a whole number from 1/],
  [['list', 'this'], 2, /Nobody knows what to do with 'this'/],
  [['list', '--table', 'a"b'], 2, /Invalid setting table/],
  [['show'], 2, /Which event\?/],
  [['prune', '--older-than', '7'], 2, /--older-than must be a number with its unit/],
  [['pause', 'order.*'], 2, /must be a definition or the name of one event type/],
  [['migrate', '--print', '--dialect', 'oracle'], 2, /--dialect must be postgres, mysql or sqlite/],
  [['migrate', '--pending'], 2, /go with --print/],
]

it('says in one line what is wrong, and never a password', async () => {
  const elsewhere: [string[], number, RegExp, string][] = [
    [['list', '--schema', 'x'], 2, /PostgreSQL alone/, 'mysql://me:hidden@127.0.0.1:1/x'],
    [['list'], 1, /The server cannot be reached/, 'mysql://me:hidden@127.0.0.1:1/x'],
    [['list'], 2, /There is no file .*no.such.file\.db/, 'sqlite:no/such/file.db'],
    [['list'], 2, /The database URL is not valid.*%2F/, 'postgres://me:hid/hidden@127.0.0.1:1/x'],
    [['list'], 1, /is not a database\. Is the path right/, 'sqlite:package.json'],
    [['migrate'], 1, /cannot be opened\. Check that its folder exists/, 'sqlite:no/such/folder/x.db'],
    [['list'], 2, /begins with none of/, 'oracle://me:hidden@127.0.0.1:1/x'],
  ]
  for (const [args, code, line, url = NOWHERE] of [...REFUSALS, ...elsewhere]) {
    const { stderr, ...result } = await run(args, url)
    expect({ ...result, stderr, args }).toMatchObject({ code, stdout: '' })
    expect(stderr).toMatch(line)
    expect(stderr).toMatch(/^aftercommit: [^\n]*\n$/)
    expect(stderr).not.toContain('hidden')
  }
})

it('says which driver to install where there is none, and takes the one of the project', async () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'aftercommit-project-'))
  onTestFinished(() => fs.rmSync(folder, { recursive: true, force: true }))
  const project = path.join(folder, 'project')
  fs.mkdirSync(project)
  // It lies beside no driver, as in a project that has installed none.
  const home = path.join(folder, 'tools', 'node_modules', 'aftercommit')
  fs.mkdirSync(home, { recursive: true })
  fs.symlinkSync(path.dirname(path.dirname(MAIN)), path.join(home, 'dist'))
  fs.writeFileSync(path.join(home, 'package.json'), '{"name":"aftercommit","type":"module"}')
  const node = ['--preserve-symlinks', '--preserve-symlinks-main', path.join(home, 'dist/cli/main.js')]
  const list = async () => {
    const child = spawn(process.execPath, [...node, 'list', '--database', NOWHERE], {
      cwd: project,
      stdio: ['ignore', 'ignore', 'pipe'],
    })
    let stderr = ''
    child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text))
    return new Promise((resolve) => child.once('close', (code) => resolve({ code, stderr })))
  }
  expect(await list()).toEqual({
    code: 2,
    stderr:
      'aftercommit: PostgreSQL needs a driver, which is not installed here: npm install pg, or npm install postgres.\n',
  })
  fs.mkdirSync(path.join(project, 'node_modules', 'pg'), { recursive: true })
  fs.writeFileSync(
    path.join(project, 'node_modules', 'pg', 'index.js'),
    'exports.Pool = class { constructor() { throw new Error("the pg of the project") } }',
  )
  expect(await list()).toEqual({ code: 1, stderr: 'aftercommit: Error: the pg of the project\n' })
})

it('ends quietly when nobody reads on', async () => {
  const command = `'${process.execPath}' '${MAIN}' migrate --print --dialect postgres; echo "code $?" >&2`
  const child = spawn('sh', ['-c', `{ ${command}; } | true`], { stdio: ['ignore', 'ignore', 'pipe'] })
  let stderr = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text))
  await new Promise((resolve) => child.once('close', resolve))
  expect(stderr).toBe('code 0\n')
})

it('tells a story that needs no database, in colour only where colour can be seen', async () => {
  const [shown, piped] = await Promise.all([inTerminal(['demo']), start(['demo']).ended])
  expect(shown.code).toBe(0)
  expectGolden('demo', shown.output)
  const times = (text: string) => text.replaceAll(/\d+(\.\d+)? m?s/g, '<time>')
  expect(times(piped.stdout)).toBe(times(stripVTControlCharacters(shown.output)))
})
