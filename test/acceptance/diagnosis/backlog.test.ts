import { createPool } from 'mysql2/promise'
import { describe, expect, inject, it } from 'vitest'
import { EventEnvelope } from '../../../src/core/envelope.js'
import { createOutbox, type OutboxStore } from '../../../src/index.js'
import { mysqlStore } from '../../../src/stores/mysql/index.js'
import { postgresStore } from '../../../src/stores/postgres/index.js'
import { sqliteStore } from '../../../src/stores/sqlite/index.js'
import { isOn } from '../../support/databases.js'
import { freshMysql } from '../../support/mariadb-server.js'
import { recordingLogger } from '../../support/recording.js'
import { sqliteDrivers, sqliteFolder } from '../../support/sqlite-drivers.js'
import { afterwards, emptyDatabase, poolOn } from '../../support/trap-kit.js'
import { until } from '../../support/until.js'
import { findingOf } from './kit.js'

interface World {
  readonly store: OutboxStore<unknown>
  run(sql: string): Promise<unknown>
  /** An expression for a time that has passed. */
  ago(minutes: number): string
}

async function onPostgres(): Promise<World> {
  const pool = poolOn(await emptyDatabase())
  const store = postgresStore(pool) as OutboxStore<unknown>
  return { store, run: (sql) => pool.query(sql), ago: (n) => `now() - interval '${n} minutes'` }
}

async function onMysql(): Promise<World> {
  const database = await freshMysql(inject('mysqlUrl') ?? '')
  afterwards('drop the database', () => database.drop())
  const pool = createPool({ uri: database.url, connectionLimit: 8 })
  afterwards('end the pool', () => pool.end())
  const store = mysqlStore(pool) as OutboxStore<unknown>
  return { store, run: (sql) => pool.query(sql), ago: (n) => `utc_timestamp(6) - interval ${n} minute` }
}

async function onSqlite(): Promise<World> {
  const folder = sqliteFolder()
  const [driver] = sqliteDrivers()
  const open = () => (driver as NonNullable<typeof driver>).open(folder.file('a.db'))
  const store = sqliteStore(open)
  afterwards('remove the folder', async () => folder.remove())
  afterwards('close', () => store.close())
  const run = async (sql: string) => {
    const client = open()
    client.exec(sql)
    client.close()
  }
  return { store: store as OutboxStore<unknown>, run, ago: (n) => `(unixepoch() - ${n} * 60) * 1000` }
}

const WORLDS: readonly (readonly [string, () => Promise<World>, boolean])[] = [
  ['PostgreSQL', onPostgres, isOn('postgres')],
  ['MySQL', onMysql, isOn('mysql')],
  ['SQLite', onSqlite, isOn('sqlite')],
]

const instance = {
  id: 'alive',
  host: 'h',
  pid: 1,
  version: '1',
  handlers: {},
  accept: { names: [], versions: [], prefixes: [''] },
  counters: { done: 0, failed: 0, dead: 0 },
}

describe.each(WORLDS.filter(([, , isThere]) => isThere))('diagnosis of a backlog on %s', (_name, open) => {
  async function opened(types: readonly { eventType: string; orderingKey?: string }[]) {
    const world = await open()
    await world.store.migrate()
    const rows = types.map((init) => ({
      event: EventEnvelope.create({ ...init, payload: 1 }),
      token: 'gone:0',
    }))
    await world.store.transaction(({ client }) =>
      world.store.append(client, rows, { leaseMs: 60_000, onDuplicate: 'error' }),
    )
    return world
  }

  it('finds rows that nobody has taken over, and leaves out those that must wait', async () => {
    const { store, run, ago } = await opened([
      { eventType: 'free' },
      { eventType: 'keyed', orderingKey: 'k' },
      { eventType: 'keyed', orderingKey: 'k' },
      { eventType: 'paused' },
    ])
    await store.pause('paused')
    expect(await findingOf(store, 'stuck leases')).toMatchObject({
      level: 'ok',
      says: '4 events are leased by 1 instance.',
    })
    await run(`update outbox_event set locked_until = ${ago(1)}`)
    expect(await findingOf(store, 'stuck leases')).toMatchObject({ level: 'ok', says: 'No event is leased.' })
    await run(`update outbox_event set locked_until = ${ago(10)}`)
    const lost = await findingOf(store, 'stuck leases')
    expect(lost).toMatchObject({ level: 'warning', advice: expect.stringMatching(/start one/) })
    expect(lost.says).toMatch(/^2 events are left by somebody whose lease ran out, up to 10 min ago/)
    await store.heartbeat(instance)
    expect((await findingOf(store, 'stuck leases')).advice).toMatch(/A live instance takes them over/)
    await store.pause('*')
    expect(await findingOf(store, 'stuck leases')).toMatchObject({ level: 'ok' })
  })

  it('names the types of events older than a minute that no consumer has registered a handler for', async () => {
    const { store, run, ago } = await opened([
      { eventType: 'worked' },
      { eventType: 'scripted' },
      { eventType: 'b\u200e' },
      { eventType: 'a', orderingKey: 'k' },
    ])
    expect(await findingOf(store, 'missing handlers')).toMatchObject({ level: 'ok' })
    await run(`update outbox_event set created_at = ${ago(2)}`)
    const only = (name: string) => ({ names: [name], versions: [1], prefixes: [] })
    await store.heartbeat({ ...instance, accept: only('worked') })
    await store.registerStopped({ ...instance, id: 'manual-1', accept: only('scripted') }, 'nobody')
    const missing = await findingOf(store, 'missing handlers')
    expect(missing.level).toBe('warning')
    expect(missing.says).toBe('No consumer has registered a handler for "a", "b\\u200e".')
    await store.heartbeat(instance)
    expect(await findingOf(store, 'missing handlers')).toMatchObject({ level: 'ok' })
    await run(`update outbox_event_instance set last_seen_at = ${ago(8 * 24 * 60)}`)
    expect((await findingOf(store, 'missing handlers')).says).toMatch(/"scripted", "worked"\.$/)
  })

  it('survives rows of the registry that no instance wrote', async () => {
    const { store, run, ago } = await opened([])
    const rows = [
      ['[]', 'null'],
      ['null', '[1, 2]'],
      ['{"a": 5, "b": [1, null, "x"]}', '{"names": 5, "versions": {}, "prefixes": "x"}'],
      ['{"__proto__": ["x"]}', '{"names": [null, {}, "a"], "versions": ["x"], "prefixes": [[], 7]}'],
      [
        '{}',
        '{"names": ["nul\\u0000", "unit\\u001e", "half\\ud800"], "versions": [1], "prefixes": ["\\u0000"]}',
      ],
    ]
    for (const [at, [handlers, accept]] of rows.entries()) {
      await run(`insert into outbox_event_instance (id, host, pid, version, handlers, accept, last_seen_at)
        values ('  ${at}', '', -1, '', '${handlers}', '${accept}', ${ago(at % 2 ? -60 : 0)})`)
    }
    const log = recordingLogger()
    const outbox = createOutbox({
      store,
      logger: log,
      poller: { pollIntervalMs: 20 },
      dispatcher: { unroutableGraceMs: 0 },
    })
    afterwards('stop the outbox', () => outbox.stop())
    outbox.on('mine', 'note', () => {})
    await outbox.start()
    await outbox.enqueue({ type: 'unknown' })
    await until(async () => (await store.stats()).dead === 1)
    await store.registerStopped({ ...instance, id: 'manual-1' }, 'nobody')
    expect((await outbox.health()).problems).toEqual([])
    const doubtful = (await store.diagnose()).filter((one) => one.says.startsWith('Could not look'))
    expect(doubtful).toEqual([])
    expect(log.lines.filter((line) => line.message.startsWith('background work failed'))).toEqual([])
  })

  it('finds what has waited too long, and lets wait what is paused', async () => {
    const { store, run, ago } = await opened([{ eventType: 'slow' }])
    const wait = (minutes: number) =>
      run(`update outbox_event set created_at = ${ago(minutes)}, available_at = ${ago(minutes)}`)
    await wait(10)
    const late = await findingOf(store, 'lag')
    expect(late.level).toBe('warning')
    expect(late.says).toMatch(/^The oldest event that is due has waited for 10 min: "slow", 1 pending\.$/)
    await wait(120)
    expect((await findingOf(store, 'lag')).level).toBe('problem')
    await store.pause('slow')
    expect(await findingOf(store, 'lag')).toMatchObject({ level: 'ok' })
  })
})
