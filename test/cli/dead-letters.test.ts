import pg from 'pg'
import { afterAll, beforeAll, beforeEach, describe, expect, inject, it } from 'vitest'
import { postgresStore } from '../../src/stores/postgres/index.js'
import { type FreshDatabase, freshDatabase } from '../support/database.js'
import { expectGolden, inTerminal, Pty } from '../support/pty.js'
import { until } from '../support/until.js'
import { run, SECRETS, seed, start } from './kit.js'

let database: FreshDatabase
let pool: pg.Pool
let env: Readonly<Record<string, string>>

beforeAll(async () => {
  database = await freshDatabase(inject('postgresUrl'))
  pool = new pg.Pool({ connectionString: database.url, max: 5 })
  env = { DATABASE_URL: database.url }
  await seed(postgresStore(pool))
  await pool.query('create table seeded as select * from outbox_event')
})

beforeEach(async () => {
  await pool.query('truncate outbox_event; insert into outbox_event select * from seeded')
})

afterAll(async () => {
  await pool.end()
  await database.drop()
})

const CHANGING: [RegExp, string][] = [
  [/"by":"[^"]*"/g, '"by":"<user>"'],
  // In which order the database answers is its own affair.
  [/"event_ids":\[[^\]]*\]/g, '"event_ids":[…]'],
]

async function dead(): Promise<string[]> {
  const { rows } = await pool.query('select event_id from outbox_event where status = 3 order by seq')
  return rows.map((row) => row.event_id as string)
}

function audited(stderr: string) {
  return stderr
    .split('\n')
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line) as Record<string, unknown>)
}

/** So many more of one type, to be worked off in several batches. */
async function many(count: number): Promise<void> {
  await pool.query(
    `insert into outbox_event (event_id, event_type, payload, status, available_at)
     select 'many-' || n, 'many.things', '{}', 3, 'infinity' from generate_series(1, $1::int) n`,
    [count],
  )
}

describe.each(['retry', 'discard'])('aftercommit %s', (command) => {
  it('prints its result with an error if another process has deleted one of the events', async () => {
    const [first] = await dead()
    const other = await pool.connect()
    await other.query('begin')
    await other.query('delete from outbox_event where event_id = $1', [first])
    const { ended } = start([command, '--dead', '--yes', '--json'], env)
    await until(async () => {
      const { rows } = await pool.query(`
        select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`)
      return rows.length > 0
    })
    await other.query('commit')
    other.release()
    const { code, stdout, stderr } = await ended
    const { act, count, of: total, error } = JSON.parse(stdout)
    expect({ act, missing: total - count }).toEqual({ act: command, missing: 1 })
    expect(error).toEqual({
      code: 'COMMAND_FAILED',
      message: '1 of the events is no longer dead, because another process has changed or deleted it.',
    })
    expect(stderr.split('\n')).toContain(`aftercommit: ${error.message}`)
    expect(code).toBe(1)
    expect(await dead()).toHaveLength(0)
  })
})

describe('aftercommit retry', () => {
  it('says what would be affected, asks, and says who did it', async () => {
    const pty = new Pty(['retry', '--dead'], { env })
    await pty.shows(/\[y\/N\] /)
    pty.type('y\n')
    expect(await pty.exit).toBe(0)
    expectGolden('retry', pty.output, CHANGING)
    expect(await dead()).toEqual([])
    const { rows } = await pool.query(`select status, attempts, available_at <= now() as due from outbox_event
      where event_id in ('dead-1', 'gone-1')`)
    expect(rows).toEqual([
      { status: 2, attempts: 0, due: true },
      { status: 2, attempts: 0, due: true },
    ])
    expect(pty.output).not.toContain(SECRETS.payload)
  })

  it('changes nothing after Return, Ctrl-C or Ctrl-D', async () => {
    const refuse = async (typed: string) => {
      const pty = new Pty(['retry', '--type', 'order.placed'], { env })
      await pty.shows(/\[y\/N\] /)
      pty.type(typed)
      expect(await pty.exit).toBe(1)
      expect(pty.output).toMatch(/aftercommit: Nothing was changed\.\r\n$/)
    }
    await Promise.all(['\n', '\u0003', '\u0004'].map(refuse))
    expect(await dead()).toHaveLength(4)
  })

  it('wakes the workers', async () => {
    const worker = new pg.Client({ connectionString: database.url })
    await worker.connect()
    await worker.query('listen outbox_event')
    const rung = new Promise((resolve) => worker.once('notification', resolve))
    const { code, stdout, stderr } = await run(['retry', 'dead-2', '--yes', '--json'], database.url)
    expect([code, JSON.parse(stdout)]).toEqual([
      0,
      { act: 'retry', count: 1, of: 1, types: { 'order.placed': 1 } },
    ])
    expect(audited(stderr)).toMatchObject([
      {
        msg: 'dead letters retried',
        act: 'retry',
        event_ids: ['dead-2'],
        count: 1,
        by: expect.stringMatching(/.@./),
      },
    ])
    expect(await rung).toMatchObject({ channel: 'outbox_event' })
    await worker.end()
    expect(await dead()).toEqual(['dead-1', 'dead-3', 'gone-1'])
  })

  it('takes as many as it has announced, batch by batch', async () => {
    await many(2_500)
    const { code, stdout, stderr } = await run(['retry', '--type', 'many.things', '--yes'], database.url)
    expect([code, stdout]).toEqual([0, 'Retried 2500 dead events.\n'])
    expect(audited(stderr).map(({ count }) => count)).toEqual([1_000, 1_000, 500])
    expect(audited(stderr)[0]?.event_ids).toHaveLength(100)
    expect(await dead()).toHaveLength(4)
  })

  it('ends after the batch under way when it is told to', async () => {
    await many(2_500)
    await pool.query(`
      create function wait() returns trigger language plpgsql as
        'begin perform pg_advisory_xact_lock(7); return null; end';
      create trigger wait after update on outbox_event for each statement execute function wait()`)
    const holder = await pool.connect()
    await holder.query('select pg_advisory_lock(7)')
    const running = start(['retry', '--type', 'many.things', '--yes'], env)
    await until(async () => {
      const { rows } = await pool.query(`
        select 1 from pg_locks join pg_database d on d.oid = database
        where locktype = 'advisory' and not granted and d.datname = current_database()`)
      return rows.length > 0
    })
    running.child.kill('SIGINT')
    await holder.query('select pg_sleep(0), pg_advisory_unlock(7)')
    const { code, stdout, stderr } = await running.ended
    await pool.query('drop trigger wait on outbox_event')
    holder.release()
    // It may learn of the end of its batch before it learns of the signal.
    const [, count] = /^Retried ([12]000) of 2500 dead events\.\n$/.exec(stdout) ?? []
    expect(code).toBe(1)
    expect(stderr).toMatch(/aftercommit: interrupted\n$/)
    expect(await dead()).toHaveLength(2_504 - Number(count))
  })
})

describe('aftercommit discard', () => {
  it('deletes for good', async () => {
    await many(1_200)
    const { code, output } = await inTerminal(['discard', '--dead', '--yes'], { env })
    expect(code).toBe(0)
    expectGolden('discard', output, CHANGING)
    const { rows } = await pool.query('select event_id from outbox_event order by seq')
    expect(rows.map((row) => row.event_id)).toEqual(['done-1', 'done-2', 'new-1', 'late-1', 'bytes-1'])
  })
})

const REFUSALS: readonly [args: string[], code: number, message: string][] = [
  [['retry', 'done-1', '--yes'], 1, 'Event done-1 is not dead but DONE.'],
  [['discard', 'new-1', '--yes'], 1, 'Event new-1 is not dead but NEW.'],
  [['discard', 'nothing', '--yes'], 1, 'There is no event nothing.'],
  [['discard', '--type', 'order.placed'], 2, 'Delete 3 dead events for good? Say so with --yes.'],
  [['retry', 'dead-1'], 2, 'Retry 1 dead event? Say so with --yes.'],
  [['retry'], 2, 'Which events?'],
  [['retry', 'dead-1', '--dead'], 2, 'Which events?'],
]

it('refuses what it is not sure of, and changes nothing', async () => {
  const refused = async ([args, code, message]: (typeof REFUSALS)[number]) => {
    const result = await run(args, database.url)
    expect(result).toMatchObject({ code, stdout: '' })
    expect(result.stderr.trim().split('\n').at(-1)).toContain(`aftercommit: ${message}`)
  }
  await Promise.all(REFUSALS.map(refused))
  expect(await dead()).toHaveLength(4)
  const none = await run(['retry', '--type', 'nothing.here'], database.url)
  expect(none).toEqual({ code: 0, stdout: 'There are no such dead events.\n', stderr: '' })
})
