import { spawn } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { stripVTControlCharacters } from 'node:util'
import { expect, it, onTestFinished } from 'vitest'
import { expectGolden, inTerminal } from '../support/pty.js'
import { MAIN, run } from './kit.js'

/** Nobody listens there. */
const NOWHERE = 'postgres://me:hidden@127.0.0.1:1/x'

it('shows what it can do', async () => {
  const [help, none, one, version] = await Promise.all([
    run(['--help']),
    run([]),
    run(['help', 'retry']),
    run(['--version']),
  ])
  expect(help).toMatchObject({ code: 0, stderr: '' })
  expect(none).toEqual({ ...help, code: 2 })
  expect(one.stdout).toMatch(
    /^aftercommit retry: .*\n\nUsage: aftercommit retry \(ID \| --dead \| --type TYPE\) \[options\]\n/,
  )
  expect(version.stdout).toMatch(/^\d+\.\d+\.\d+\n$/)
})

const REFUSALS: readonly [args: string[], code: number, line: RegExp][] = [
  [['lst'], 2, /There is no command 'lst'\. Did you mean list\?/],
  [['list'], 2, /No database\. Give --database URL, or set OUTBOX_DB_URL or DATABASE_URL\./],
  [['list', '--statsu', 'dead'], 2, /There is no option '--statsu'\. Did you mean --status\?/],
  [['list', '--status', 'broken', '--database', NOWHERE], 2, /--status must be/],
  [['list', '--limit', '0', '--database', NOWHERE], 2, /--limit must be a whole number from 1/],
  [['list', 'this', '--database', NOWHERE], 2, /Nobody knows what to do with 'this'/],
  [['list', '--table', 'a"b', '--database', NOWHERE], 2, /Invalid setting table/],
  [['show', '--database', NOWHERE], 2, /Which event\?/],
  [['prune', '--older-than', '7', '--database', NOWHERE], 2, /--older-than must be a number with its unit/],
  [['pause', 'order.*', '--database', NOWHERE], 2, /must be a definition or the name of one event type/],
  [['migrate', '--print'], 2, /--dialect postgres, mysql or sqlite/],
  [['migrate', '--pending', '--database', NOWHERE], 2, /go with --print/],
  [['list', '--schema', 'x', '--database', 'mysql://me:hidden@127.0.0.1:1/x'], 2, /PostgreSQL alone/],
  [['list', '--database', 'sqlite:no/such/file.db'], 2, /There is no file .*no.such.file\.db/],
  [
    ['list', '--database', NOWHERE],
    1,
    /The server cannot be reached: .*127\.0\.0\.1:1\. Is the address right/,
  ],
  [['list', '--database', 'mysql://me:hidden@127.0.0.1:1/x'], 1, /The server cannot be reached/],
]

it('says in one line what is wrong, and never a password', async () => {
  await Promise.all(
    REFUSALS.map(async ([args, code, line]) => {
      const { stderr, ...result } = await run(args)
      expect({ ...result, stderr, args }).toMatchObject({ code, stdout: '' })
      expect(stderr).toMatch(line)
      expect(stderr).toMatch(/^aftercommit: [^\n]*\n$/)
      expect(stderr).not.toContain('hidden')
    }),
  )
})

it('says which driver to install where there is none, and takes the one of the project', async () => {
  const project = fs.mkdtempSync(path.join(os.tmpdir(), 'aftercommit-project-'))
  onTestFinished(() => fs.rmSync(project, { recursive: true, force: true }))
  // A copy that lies beside no driver, as in a project that has installed none.
  const home = path.join(project, 'node_modules', 'aftercommit')
  fs.cpSync(path.dirname(path.dirname(MAIN)), path.join(home, 'dist'), { recursive: true })
  fs.writeFileSync(path.join(home, 'package.json'), '{"name":"aftercommit","type":"module"}')
  const list = async () => {
    const child = spawn(
      process.execPath,
      [path.join(home, 'dist/cli/main.js'), 'list', '--database', NOWHERE],
      {
        cwd: project,
        stdio: ['ignore', 'ignore', 'pipe'],
      },
    )
    let stderr = ''
    child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text))
    return new Promise((resolve) => child.once('close', (code) => resolve({ code, stderr })))
  }
  expect(await list()).toEqual({
    code: 2,
    stderr:
      'aftercommit: PostgreSQL needs a driver, which is not installed here: npm install pg, or npm install postgres.\n',
  })
  fs.mkdirSync(path.join(project, 'node_modules', 'pg'))
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
  const [shown, plain, piped] = await Promise.all([
    inTerminal(['demo']),
    inTerminal(['demo'], { env: { NO_COLOR: '1' } }),
    run(['demo']),
  ])
  expect(shown.code).toBe(0)
  expectGolden('demo', shown.output)
  const withoutColour = stripVTControlCharacters(shown.output)
  const times = (text: string) => text.replaceAll(/\d+(\.\d+)? m?s/g, '<time>')
  expect(times(plain.output)).toBe(times(withoutColour))
  expect(times(piped.stdout)).toBe(times(withoutColour))
})
