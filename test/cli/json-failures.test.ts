import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { describe, expect, inject, it, onTestFinished } from 'vitest'
import { emptyDatabase } from '../support/trap-kit.js'
import { type Run, start } from './kit.js'

const NOWHERE = 'postgres://u@127.0.0.1:1/x'
const HANDLERS = path.resolve(import.meta.dirname, '../acceptance/secrets/handlers.mjs')

/** Arguments that make sense for each command. Extend the list with each new command. */
const COMMANDS: Readonly<Record<string, readonly string[]>> = {
  migrate: [],
  doctor: [],
  status: [],
  list: [],
  show: ['e-1'],
  retry: ['e-1'],
  discard: ['e-1', '--yes'],
  prune: [],
  pause: [],
  resume: [],
  work: ['--handlers', HANDLERS],
  consume: ['--handlers', HANDLERS],
  relay: ['--to', 'redis://127.0.0.1:1'],
  demo: [],
}
/** These have no `--json` themselves, so that it is a usage error. */
const WITHOUT_JSON = ['work', 'relay', 'demo']

function run(...args: readonly string[]): Promise<Run> {
  return start(args).ended
}

function expectFailure({ code, stdout, stderr }: Run, exitCode: number, errorCode: string): void {
  expect(stdout).toMatch(/^[^\n]+\n$/)
  const { error, ...rest } = JSON.parse(stdout)
  expect(rest).toEqual({})
  expect(error).toEqual({ code: errorCode, message: expect.stringMatching(/\S/) })
  expect(stderr).toBe(`aftercommit: ${error.message}\n`)
  expect(code).toBe(exitCode)
}

describe('with --json, a failure is one JSON object on standard output and one line on standard error', () => {
  it('lists every command of the help', async () => {
    const { stdout } = await run('--help')
    const named = [...stdout.matchAll(/^ {2}(\w+) {2,}/gm)].map(([, name]) => name)
    expect(named.sort()).toEqual(Object.keys(COMMANDS).sort())
  })

  it.each(Object.entries(COMMANDS))(
    'unknown option, and database that cannot be reached: %s',
    async (name, args) => {
      const [unknown, unreachable] = await Promise.all([
        run(name, ...args, '--json', '--nothing'),
        run(name, ...args, '--json', '--database', NOWHERE),
      ])
      expectFailure(unknown, 2, 'USAGE')
      if (WITHOUT_JSON.includes(name)) expectFailure(unreachable, 2, 'USAGE')
      else if (name === 'doctor') expect(JSON.parse(unreachable.stdout)).toMatchObject({ ok: false })
      else expectFailure(unreachable, 1, 'ECONNREFUSED')
    },
  )

  it.each([
    ['an unknown command', ['lst', '--json']],
    ['an option in the place of the command', ['--json']],
    ['help about an unknown command', ['help', 'lst', '--json']],
    ['--json with a value', ['list', '--json=yes']],
    ['an option without its value', ['list', '--json', '--limit']],
    ['a surplus argument', ['list', 'x', '--json']],
    ['a value out of range', ['list', '--limit', '0', '--json']],
    ['no database', ['list', '--json']],
  ])('%s', async (_what, args) => {
    expectFailure(await run(...args), 2, 'USAGE')
  })

  it('a setting from the environment that is refused', async () => {
    const { ended } = start(['prune', '--json', '--database', NOWHERE], { OUTBOX_RETENTION_DAYS: '-1' })
    expectFailure(await ended, 2, 'INVALID_SETTING')
  })

  it('an event that is not there, and tables that are missing', async () => {
    const url = await emptyDatabase()
    expectFailure(await run('show', 'e-1', '--json', '--database', url), 1, 'STORE_NOT_MIGRATED')
    await run('migrate', '--database', url)
    expectFailure(await run('show', 'e-1', '--json', '--database', url), 1, 'COMMAND_FAILED')
    expectFailure(await run('retry', 'e-1', '--json', '--database', url), 1, 'COMMAND_FAILED')
  })

  it('an error of the server', async () => {
    const url = new URL(inject('postgresUrl'))
    url.pathname = '/there_is_no_such_database'
    expectFailure(await run('list', '--json', '--database', url.href), 1, '3D000')
  })

  it('a handlers file whose function never ends', async () => {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'redaction-'))
    onTestFinished(() => fs.rmSync(folder, { recursive: true }))
    const file = path.join(folder, 'handlers.mjs')
    fs.writeFileSync(file, 'export default () => new Promise(() => {})')
    expectFailure(
      await run('consume', '--json', '--handlers', file, '--database', NOWHERE),
      1,
      'NEVER_SETTLED',
    )
  })
})

it('prints failures on standard error alone when --json is a value or follows --', async () => {
  for (const args of [
    ['list', '--type=--json', '--limit', '0'],
    ['show', '--', '--json'],
  ]) {
    expect(await run(...args)).toMatchObject({ code: 2, stdout: '' })
  }
})
