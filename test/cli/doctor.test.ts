import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { checkNode, checkSettings, checkUrl } from '../../src/cli/checks.js'
import { postgresStore } from '../../src/stores/postgres/index.js'
import { expectGolden, inTerminal } from '../support/pty.js'
import { emptyDatabase, migratedDatabase, poolOn } from '../support/trap-kit.js'
import { cli } from './process.js'

const levels = (findings: readonly { level: string }[]) => findings.map(({ level }) => level)

describe('aftercommit doctor', () => {
  it('tells a new user what to do first, and ends with 1', async () => {
    const url = await emptyDatabase()
    const { code, output } = await inTerminal(['doctor'], { env: { DATABASE_URL: url } })
    expect(code).toBe(1)
    expect(output).toContain('aftercommit migrate')
    const { host, pathname, password } = new URL(url)
    expectGolden('doctor', output, [
      [new RegExp(`${host}${pathname}`, 'g'), '<place>'],
      [/Node [\d.]+/g, 'Node <version>'],
      [/pg [\d.]+/g, 'pg <version>'],
      [/PostgreSQL [\d.]+( \([^)]*\))?/g, 'PostgreSQL <version>'],
      [/is .* (ahead of|behind) the one/g, 'is <so far off> the one'],
      [/has \d+ of \d+ in use/g, 'has <n> of <n> in use'],
    ])
    if (password) expect(output).not.toContain(password)
  })

  it('prints every finding of the store, as text and as JSON, and ends with 0 when there is no problem', async () => {
    const url = await migratedDatabase()
    const found = await postgresStore(poolOn(url)).diagnose()
    const [text, json] = await Promise.all([
      cli(['doctor', '--database', url]),
      cli(['doctor', '--database', url, '--json'], { env: { OUTBOX_LEASE_MS: '150' } }),
    ])
    const { ok, findings } = JSON.parse(json.stdout)
    const checks = findings.map(({ check }: { check: string }) => check)
    expect(checks).toEqual(['node', 'settings', 'url', 'driver', ...found.map(({ check }) => check)])
    // The short lease is a warning, and no more than that.
    expect(levels(findings)[1]).toBe('warning')
    expect({ ok, code: json.code }).toEqual({ ok: true, code: 0 })
    expect(text.code).toBe(0)
    for (const check of checks) expect(text.stdout).toMatch(new RegExp(`^[✓!] ${check} `, 'm'))
    expect(text.stdout).not.toContain('\u001b')
  })

  it('says what stops it before any database answers', async () => {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'aftercommit-cli-'))
    onTestFinished(() => fs.rmSync(folder, { recursive: true }))
    const secret = 'postgres://u:hunter2@127.0.0.1:1/shop?password=hunter2'
    const [none, unreachable, settings, file, noDatabase] = await Promise.all([
      cli(['doctor']),
      cli(['doctor', '--database', secret]),
      cli(['doctor', '--json'], {
        env: { OUTBOX_MAX_ATTEMPTS: 'many', OUTBOX_LEESE_MS: '1', OUTBOX_DB_URL: secret },
      }),
      cli(['doctor', '--database', `sqlite:${folder}/none.db`]),
      cli(['doctor', '--database', 'file:package.json']),
    ])
    expect(none).toMatchObject({ code: 1, stdout: expect.stringMatching(/✗ url +No database is named/) })
    expect(unreachable).toMatchObject({
      code: 1,
      stdout: expect.stringMatching(/✗ connection .*ECONNREFUSED/),
    })
    expect(unreachable.stdout).toContain('postgres://127.0.0.1:1/shop, given by --database')
    const { findings } = JSON.parse(settings.stdout)
    expect(findings.slice(1, 3)).toMatchObject([
      { check: 'settings', level: 'warning', says: expect.stringContaining('OUTBOX_LEESE_MS') },
      { check: 'settings', level: 'problem', says: expect.stringContaining('OUTBOX_MAX_ATTEMPTS') },
    ])
    expect(file).toMatchObject({ code: 1, stdout: expect.stringMatching(/✗ url +There is no file/) })
    expect(noDatabase.stdout).toMatch(/✗ connection .*is not a database\n +See that the path is right/)
    expect(fs.readdirSync(folder)).toEqual([])
    for (const run of [none, unreachable, settings, file]) {
      expect(run.stderr).toBe('')
      expect(run.stdout).not.toContain('hunter2')
    }
  })
})

describe('what lies outside of the database', () => {
  it('Node must be new enough', () => {
    expect(
      ['18.20.1', '20.18.9', '20.19.0', '22.0.0', '100.0.0'].map((version) => checkNode(version).level),
    ).toEqual(['problem', 'problem', 'ok', 'ok', 'ok'])
  })

  it.each<[Record<string, string>, string[]]>([
    [{}, ['ok']],
    [{ OUTBOX_CONCURRENCY: '8', OUTBOX_DB_URL: 'x', OUTBOX_LOG_LEVEL: 'warn' }, ['ok']],
    [{ OUTBOX_CONCURRENCY: ' ', OUTBOX_UNKNOWN: '' }, ['ok']],
    [{ OUTBOX_CONCURRENCY: '0' }, ['problem']],
    [{ OUTBOX_LOG_LEVEL: 'loud' }, ['problem']],
    [{ OUTBOX_ON_DEAD: 'stop' }, ['problem']],
    [{ OUTBOX_CONCURENCY: '8' }, ['warning']],
    [{ OUTBOX_LEASE_MS: '500' }, ['warning']],
    [{ OUTBOX_POLL_INTERVAL_MS: '3600000', OUTBOX_SKIP_RECENT_MS: '100000' }, ['warning', 'warning']],
    [{ OUTBOX_BATCH_SIZE: '5000' }, ['warning']],
    [{ OUTBOX_BATCH_SIZE: '5000', OUTBOX_COLD_QUEUE_SIZE: '5000' }, ['ok']],
    [{ OUTBOX_RETENTION_DAYS: '4000' }, ['warning']],
  ])('settings %j', (env, expected) => {
    const findings = checkSettings(env)
    expect(levels(findings)).toEqual(expected)
    expect(findings.filter(({ level, advice }) => level !== 'ok' && !advice)).toEqual([])
  })

  it.each([
    ['postgres://user:hunter2@db:5432/shop?sslmode=require', 'ok'],
    ['postgres://user:/hunter2@db/shop', 'problem'],
    ['postgres://user:12/hunter2@db/shop', 'problem'],
    ['file:package.json', 'ok'],
    ['sqlite:package.json?mode=ro', 'ok'],
    ['mysql://user:hun#ter2@db/shop', 'problem'],
    ['mysql://hunter2:1#2@db/shop', 'problem'],
    ['postgres://user:hunter2@db:port/shop', 'problem'],
    ['oracle://user:hunter2@db/shop', 'problem'],
    ['hunter2', 'problem'],
    ['sqlite:/none/hunter/none.db', 'problem'],
  ])('the URL %s', (database, level) => {
    const finding = checkUrl({ database })
    expect(finding.level).toBe(level)
    expect(JSON.stringify(finding)).not.toContain('hunter2')
  })
})
