import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import type pg from 'pg'
import { describe, expect, it, onTestFinished } from 'vitest'
import { createOutbox, silentLogger } from '../../../src/index.js'
import { postgresStore } from '../../../src/stores/postgres/index.js'
import { Cli } from '../../cli/process.js'
import { migratedDatabase, poolOn } from '../../support/trap-kit.js'
import { until as untilWithin } from '../../support/until.js'

const HOUR_MS = 3_600_000
/** A busy machine takes seconds to start a process. */
const TIMEOUT_MS = 120_000

const until = (condition: () => unknown) => untilWithin(condition, { timeoutMs: 30_000 })

/** Writes a file that registers a handler for the type. */
function handlersFor(type: string): string {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'aftercommit-cron-'))
  onTestFinished(() => fs.rmSync(folder, { recursive: true }))
  const file = path.join(folder, 'handlers.mjs')
  fs.writeFileSync(file, `export default (outbox) => { outbox.on('${type}', 'note', () => {}) }`)
  return file
}

/** A worker process that looks for unroutable events about twice per second. */
async function worker(url: string, type: string, env: Record<string, string> = {}): Promise<Cli> {
  const child = new Cli(['work', '--handlers', handlersFor(type), '--database', url], {
    env: { OUTBOX_POLL_INTERVAL_MS: '50', ...env },
  })
  await until(() => child.stdout.includes('the worker has started'))
  return child
}

async function insert(pool: pg.Pool, type: string, ageMs = 0): Promise<void> {
  await pool.query(
    `insert into outbox_event (event_id, event_type, payload, created_at, available_at)
     select gen_random_uuid(), $1, '{}', t, t from (select now() - $2::float8 * interval '1 ms' as t) s`,
    [type, ageMs],
  )
}

async function statusOf(pool: pg.Pool, type: string): Promise<number[]> {
  const { rows } = await pool.query('select status from outbox_event where event_type = $1', [type])
  return rows.map((row) => Number(row.status))
}

/** Resolves after a search for unroutable events that has seen everything written before. */
async function swept(pool: pg.Pool): Promise<void> {
  const type = `nobody.${Math.random()}`
  await insert(pool, type, 30 * 24 * HOUR_MS)
  await until(async () => (await statusOf(pool, type))[0] === 3)
}

describe('processes that consume by hand, next to a worker with other handlers', () => {
  it('consume --once handles every event, although the worker makes unroutable events DEAD immediately', {
    timeout: TIMEOUT_MS,
  }, async () => {
    const url = await migratedDatabase()
    const pool = poolOn(url)
    const handlers = handlersFor('report.due')
    const consume = async () => {
      const child = new Cli(['consume', '--once', '--json', '--handlers', handlers, '--database', url])
      expect((await child.exit).code).toBe(0)
      return JSON.parse(child.stdout).handled as number
    }
    expect(await consume()).toBe(0)
    await worker(url, 'order.placed', { OUTBOX_UNROUTABLE_GRACE_MS: '0' })
    for (let n = 0; n < 3; n++) await insert(pool, 'report.due', HOUR_MS)
    await swept(pool)
    expect(await statusOf(pool, 'report.due')).toEqual([0, 0, 0])
    for (let n = 0; n < 3; n++) expect(await consume()).toBe(1)
    expect(await statusOf(pool, 'report.due')).toEqual([1, 1, 1])
    const observer = createOutbox({ store: postgresStore(pool), logger: silentLogger })
    await until(async () => (await observer.stats()).done === 3)
    const { rows } = await pool.query('select stopped_at is null as runs, done from outbox_event_instance')
    expect(rows.map(({ runs, done }) => [runs, Number(done)]).sort()).toEqual([
      [false, 3],
      [true, 0],
    ])
  })

  it('consume leaves events of others alone, and repeated runs leave one row in the registry', {
    timeout: TIMEOUT_MS,
  }, async () => {
    const url = await migratedDatabase()
    const pool = poolOn(url)
    await insert(pool, 'theirs', 30 * 24 * HOUR_MS)
    for (const once of [[], ['--once'], [], ['--once']]) {
      await insert(pool, 'report.due')
      const child = new Cli(['consume', ...once, '--handlers', handlersFor('report.due'), '--database', url])
      expect((await child.exit).code).toBe(0)
    }
    expect(await statusOf(pool, 'report.due')).toEqual([1, 1, 1, 1])
    expect(await statusOf(pool, 'theirs')).toEqual([0])
    const { rows } = await pool.query('select id, done from outbox_event_instance order by id')
    expect(rows.map(({ id, done }) => [id.replace(/-.*/, ''), Number(done)])).toEqual([
      ['manual', 2],
      ['stopped', 2],
    ])
  })
})

describe('a worker that is deployed after the first events of its type', () => {
  it('still gets events that are 23 hours old; older ones are DEAD', { timeout: TIMEOUT_MS }, async () => {
    const url = await migratedDatabase()
    const pool = poolOn(url)
    await insert(pool, 'order.placed', 23 * HOUR_MS)
    await insert(pool, 'order.shipped', 25 * HOUR_MS)
    const other = await worker(url, 'mail.sent')
    await swept(pool)
    expect([await statusOf(pool, 'order.placed'), await statusOf(pool, 'order.shipped')]).toEqual([[0], [3]])
    await until(() => other.stdout.includes('"order.placed"'))
    await worker(url, 'order.placed')
    await until(async () => (await statusOf(pool, 'order.placed'))[0] === 1)
    const lines = other.stdout.split('\n').filter((line) => line.includes('registered a handler'))
    expect(lines.filter((line) => line.includes('"order.placed"'))).toHaveLength(1)
  })
})
