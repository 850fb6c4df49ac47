import pg from 'pg'
import { afterAll, beforeAll, describe, expect, inject, it, onTestFinished, vi } from 'vitest'
import { EventId } from '../../src/core/event-id.js'
import { createOutbox, silentLogger } from '../../src/index.js'
import { postgresStore } from '../../src/stores/postgres/index.js'
import { type FreshDatabase, freshDatabase } from '../support/database.js'
import { expectGolden, inTerminal } from '../support/pty.js'
import { emptyDatabase } from '../support/trap-kit.js'
import { type Run, run, SECRETS, seed } from './kit.js'

let database: FreshDatabase
let empty: FreshDatabase
let pool: pg.Pool
let env: Readonly<Record<string, string>>

beforeAll(async () => {
  const server = inject('postgresUrl')
  ;[database, empty] = await Promise.all([freshDatabase(server), freshDatabase(server)])
  pool = new pg.Pool({ connectionString: database.url, max: 5 })
  env = { DATABASE_URL: database.url }
  await seed(postgresStore(pool))
  await pool.query(`update outbox_event set created_at = now() - interval '3 hours',
    available_at = case when available_at < now() then now() - interval '3 hours' else available_at end,
    done_at = done_at - interval '10 days'`)
})

afterAll(async () => {
  await pool.end()
  await Promise.all([database.drop(), empty.drop()])
})

async function golden(name: string, args: readonly string[], options: { columns?: number } = {}) {
  const { code, output } = await inTerminal(args, { env, ...options })
  expectGolden(name, output)
  return { code, output }
}

function hidesSecrets({ stdout, stderr }: Pick<Run, 'stdout' | 'stderr'>): void {
  for (const secret of Object.values(SECRETS)) expect(stdout + stderr).not.toContain(secret)
}

describe('aftercommit migrate', () => {
  it('is asked for by every command that finds no tables', async () => {
    const commands = [['list'], ['show', 'x'], ['retry', 'x'], ['prune'], ['pause']]
    for (const result of await Promise.all(commands.map((args) => run(args, empty.url)))) {
      expect(result).toEqual({
        code: 1,
        stdout: '',
        stderr: 'aftercommit: The outbox tables are missing or too old. Run: aftercommit migrate\n',
      })
    }
  })

  it('prints SQL alone that another tool can run, and then has nothing to do', async () => {
    const [all, pending] = await Promise.all([
      run(['migrate', '--print', '--dialect', 'postgres']),
      run(['migrate', '--print', '--pending'], empty.url),
    ])
    expect(pending.stdout).toBe(all.stdout)
    const client = new pg.Client({ connectionString: empty.url })
    await client.connect()
    await client.query(all.stdout)
    await client.end()
    const env = { DATABASE_URL: empty.url }
    expectGolden('migrate-again', (await inTerminal(['migrate'], { env })).output)
    const left = await run(['migrate', '--print', '--pending'], empty.url)
    expect(left).toEqual({ code: 0, stdout: '', stderr: 'Nothing is pending.\n' })
  })

  it('creates the tables, with a name and in a schema of one’s own', async () => {
    await pool.query('create schema events')
    const args = ['migrate', '--schema', 'events', '--table', 'outbox']
    expect((await golden('migrate', args)).code).toBe(0)
    expect((await run([...args, '--json'], database.url)).stdout).toBe('{"applied":[]}\n')
    expect((await run(['list', '--schema', 'events', '--table', 'outbox'], database.url)).stderr).toBe(
      'There are no such events.\n',
    )
  })
})

describe('aftercommit list', () => {
  it('is a table that fits the window', async () => {
    const { output } = await golden('list', ['list'])
    hidesSecrets({ stdout: output, stderr: '' })
    expect(output).not.toContain('\u001b[2J')
    await golden('list-narrow', ['list', '--status', 'dead', '--limit', '2'], { columns: 70 })
  })

  it('never cuts an id, however narrow the window is', async () => {
    const { output } = await inTerminal(['list', '--status', 'dead', '--limit', '2'], {
      env,
      columns: 16,
    })
    expect(output).toMatch(/dead-1 +…/)
    expect(output).toMatch(/dead-2 +…/)
  })

  it('goes on behind a number, by status and type', async () => {
    const ids = async (...args: string[]) => {
      const { code, stdout } = await run(['list', '--json', ...args], database.url)
      expect(code).toBe(0)
      return (JSON.parse(stdout) as { eventId: string }[]).map(({ eventId }) => eventId)
    }
    const [dead, pending, done, page, orders, none] = await Promise.all([
      ids('--status', 'dead'),
      ids('--status', 'pending'),
      ids('--status', 'done'),
      ids('--limit', '2', '--after', '2'),
      ids('--type', 'order.placed', '--status', 'any'),
      ids('--status', 'new', '--type', 'nothing.here'),
    ])
    expect(dead).toEqual(['dead-1', 'dead-2', 'dead-3', 'gone-1'])
    expect(pending).toEqual(['new-1', 'late-1', 'bytes-1'])
    expect(done).toEqual(['done-1', 'done-2'])
    expect(page).toEqual(['dead-2', 'dead-3'])
    expect(orders).toEqual(['dead-1', 'dead-2', 'dead-3'])
    expect(none).toEqual([])
  })

  it('goes through page after page, each event once', async () => {
    await pool.query(`insert into outbox_event (event_id, event_type, payload, status, done_at)
      select 'many-' || n, 'many.things', to_json(repeat('x', 20000)), n % 2, now() from generate_series(1, 450) n`)
    const { stdout } = await run(
      ['list', '--type', 'many.things', '--limit', '440', '--json', '--status', 'pending'],
      database.url,
    )
    const all = await run(['list', '--type', 'many.things', '--limit', '440'], database.url)
    await pool.query(`delete from outbox_event where event_type = 'many.things'`)
    const ids = (JSON.parse(stdout) as { eventId: string }[]).map(({ eventId }) => eventId)
    expect(ids).toEqual(Array.from({ length: 225 }, (_, n) => `many-${2 * n + 2}`))
    expect(all.stdout.match(/many-\d+/g)).toEqual(Array.from({ length: 440 }, (_, n) => `many-${n + 1}`))
    expect(all.stderr).toMatch(/^There are more: .* --after \d+\n$/)
  })

  it('shows payloads and headers when they are asked for, and never user ids', async () => {
    const [hidden, shown] = await Promise.all([
      run(['list', '--json'], database.url),
      run(['list', '--json', '--show-payload'], database.url),
    ])
    hidesSecrets(hidden)
    const find = ({ stdout }: Run, id: string) =>
      (JSON.parse(stdout) as { eventId: string }[]).find(({ eventId }) => eventId === id)
    expect(find(hidden, 'dead-1')).toMatchObject({
      status: 'DEAD',
      attempts: 2,
      headers: { hidden: 1 },
      payload: { kind: 'json', size: 25 },
      metadata: { userId: '[redacted]', correlationId: 'request-7' },
    })
    expect(find(hidden, 'bytes-1')).toMatchObject({ payload: { kind: 'bytes', size: 3 } })
    expect(find(shown, 'dead-1')).toMatchObject({
      headers: { token: SECRETS.header },
      payload: { value: { note: SECRETS.payload } },
      metadata: { userId: '[redacted]' },
    })
    expect(find(shown, 'bytes-1')).toMatchObject({ payload: { base64: 'AQID' } })
    expect(shown.stdout).not.toContain(SECRETS.user)
  })
})

describe('aftercommit show', () => {
  it('tells the story of a dead event', async () => {
    const { output } = await golden('show-dead', ['show', 'dead-1'])
    hidesSecrets({ stdout: output, stderr: '' })
    expect(output).not.toContain('\u001b[2J')
  })

  it('shows its payload when that is asked for', async () => {
    const { stdout } = await run(['show', 'dead-1', '--show-payload'], database.url)
    expect(stdout).toContain(`  headers       {"token":"${SECRETS.header}"}
  payload       {"note":"${SECRETS.payload}"}
`)
    expect(stdout).not.toContain(SECRETS.user)
    expect((await run(['show', 'bytes-1', '--show-payload'], database.url)).stdout).toContain(
      'as base64: AQID',
    )
  })

  it('says what will happen to one that waits', async () => {
    await golden('show-retry', ['show', 'late-1'])
  })

  it('is one JSON value', async () => {
    const { stdout } = await run(['show', 'new-1', '--json'], database.url)
    expect(JSON.parse(stdout)).toMatchObject({
      eventId: 'new-1',
      orderingKey: 'order o-1',
      failures: [],
      lease: null,
      next: 'waits for a process that handles order.shipped: none is running',
    })
  })

  it('says that there is no such event', async () => {
    expect(await run(['show', 'no\u001b[2Jthing'], database.url)).toEqual({
      code: 1,
      stdout: '',
      stderr: 'aftercommit: There is no event no\\u001b[2Jthing. It may be done and pruned.\n',
    })
  })
})

describe('aftercommit pause and resume', () => {
  it('pauses a type, tells so, and takes it back', async () => {
    const by: [RegExp, string][] = [[/"by":"[^"]*"/g, '"by":"<user>"']]
    const inOrder = async (name: string, args: readonly string[]) =>
      expectGolden(name, (await inTerminal(args, { env })).output, by)
    await inOrder('pause', ['pause', 'order.shipped'])
    const { stdout } = await run(['show', 'new-1', '--json'], database.url)
    expect(JSON.parse(stdout).next).toBe('waits, since its type is paused: aftercommit resume order.shipped')
    expect(JSON.parse((await run(['pause', '--json'], database.url)).stdout)).toEqual({
      paused: ['*', 'order.shipped'],
    })
    await inOrder('resume', ['resume'])
    const again = await run(['resume', '--json'], database.url)
    expect(JSON.parse(again.stdout)).toEqual({ resumed: false, paused: ['order.shipped'] })
  })
})

describe('aftercommit prune', () => {
  it('deletes what was done long ago, by the option or by the environment', async () => {
    vi.stubEnv('OUTBOX_RETENTION_DAYS', '30')
    onTestFinished(() => void vi.unstubAllEnvs())
    const first = await run(['prune', '--json'], database.url)
    expect(JSON.parse(first.stdout)).toEqual({ pruned: 0, olderThanMs: 30 * 86_400_000, complete: true })
    await golden('prune', ['prune'])
    const { rows } = await pool.query('select event_id from outbox_event where status = 1')
    expect(rows).toEqual([])
  })
})

it('shows the whole stored text of an error by show and list --json, and its start by list', async () => {
  const url = await emptyDatabase()
  const pool = new pg.Pool({ connectionString: url })
  const outbox = createOutbox({
    store: postgresStore(pool),
    logger: silentLogger,
    redact: () => '[cut]',
    retry: { maxAttempts: 1 },
  })
  await outbox.migrate()
  outbox.on('a', 'fails', () => {
    throw new Error(`card declined ${'x'.repeat(1_000)} the end\nline 2`)
  })
  await outbox.enqueue({ type: 'a', eventId: EventId.from('e-1'), payload: null })
  await outbox.drain()
  await outbox.stop()
  await pool.end()
  for (const args of [
    ['show', 'e-1'],
    ['show', 'e-1', '--json'],
    ['list', '--json'],
  ])
    expect((await run(args, url)).stdout, args.join(' ')).toContain(`${'x'.repeat(1_000)} the end`)
  const { stdout } = await run(['list'], url)
  expect(stdout).toContain('card declined x')
  expect(stdout).not.toContain('the end')
})
