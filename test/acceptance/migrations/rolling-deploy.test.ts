import { randomBytes } from 'node:crypto'
import pg from 'pg'
import { describe, expect, it, onTestFinished } from 'vitest'
import { createOutbox, silentLogger } from '../../../src/index.js'
import { postgresStore } from '../../../src/stores/postgres/index.js'
import { startWorker, type Worker } from '../../support/child.js'
import { OldRelease } from '../../support/old-release.js'
import { claimOf, fill } from '../../support/range-stress.js'
import { until } from '../../support/until.js'
import { onEveryPostgres, type World } from '../../support/world.js'

/** The release before migration 2. */
const old = new OldRelease('aftercommit-schema-1.tgz')
const SETTINGS = { doorbell: true, poller: { pollIntervalMs: 100, batchSize: 20 } }

/** Plain, ordered and delayed ones. */
const events = (count: number, name: string) =>
  Array.from({ length: count }, (_, n) => ({
    type: 'any.thing',
    eventId: `${name}-${n}`,
    payload: {},
    ...(n % 3 === 0 ? { orderingKey: `key-${n % 7}` } : {}),
  }))

function newRelease(url: string, table: string) {
  const pool = new pg.Pool({ connectionString: url, max: 12 })
  pool.on('error', () => {})
  const outbox = createOutbox({
    store: postgresStore(pool, { table }),
    logger: silentLogger,
    poller: SETTINGS.poller,
  })
  const handled: string[] = []
  outbox.on('*', 'work', (event) => void handled.push(event.eventId))
  onTestFinished(async () => {
    await outbox.stop()
    await pool.end()
  })
  return { outbox, pool, handled }
}

/** Both publish, both handle; every event once. */
async function workTogether(release: ReturnType<typeof newRelease>, worker: Worker, name: string) {
  const { outbox, handled } = release
  const before = handled.length + worker.ids('ended').length
  worker.order('publish', { events: events(150, `${name}-by-old`) })
  for (let at = 0; at < 5; at++) {
    const some = events(150, `${name}-by-new`).slice(at * 30, at * 30 + 30)
    await outbox.transaction((tx) => tx.publishAll(some))
  }
  await outbox.enqueue({ type: 'any.thing', eventId: `${name}-delayed`, payload: {} }, { delayMs: 50 })
  const all = () => [...handled, ...worker.ids('ended')]
  await until(() => all().length - before >= 301, { timeoutMs: 20_000, what: '301 events handled' })
  await until(async () => (await outbox.stats()).pending === 0)
  expect(new Set(all()).size).toBe(all().length)
  expect((await outbox.stats()).dead).toBe(0)
}

onEveryPostgres('a rolling deploy', (newWorld) => {
  const unmigrated = (world: World) => `o_${randomBytes(6).toString('hex')}_${world.table.slice(2, 8)}`

  it('the old release goes on working on the new schema, beside the new one', {
    timeout: 60_000,
  }, async () => {
    const world = await newWorld()
    const worker = await startWorker(world, { ...SETTINGS, release: old.folder })
    const release = newRelease(world.url, world.table)
    await release.outbox.start()
    await workTogether(release, worker, 'a')
    expect(worker.ids('ended').length).toBeGreaterThan(0)
    expect(release.handled.length).toBeGreaterThan(0)
  })

  it('the old release spares the events of manual consumers of the new one', {
    timeout: 60_000,
  }, async () => {
    const world = await newWorld()
    const script = () => {
      const outbox = createOutbox({
        store: postgresStore(world.pool, { table: world.table }),
        logger: silentLogger,
      })
      outbox.on('report.due', 'note', () => {})
      return outbox
    }
    await script().drain()
    const child = old.start(`
      import pg from 'pg'
      import { createOutbox } from 'aftercommit'
      import { postgresStore } from 'aftercommit/postgres'
      const outbox = createOutbox({
        store: postgresStore(new pg.Pool({ connectionString: ${JSON.stringify(world.url)} }), {
          table: ${JSON.stringify(world.table)},
        }),
        dispatcher: { unroutableGraceMs: 0 },
        poller: { pollIntervalMs: 50 },
      })
      outbox.on('order.placed', 'note', () => {})
      await outbox.start()`)
    onTestFinished(() => void child.kill('SIGKILL'))
    const insert = (id: string, type: string) =>
      world.pool.query(`insert into ${world.table} (event_id, event_type, payload) values ($1, $2, '{}')`, [
        id,
        type,
      ])
    for (const id of ['a', 'b', 'c']) await insert(id, 'report.due')
    await insert('stray', 'nobody.handles')
    const statusOf = async (id: string) => (await world.rows()).find((row) => row.id === id)?.status
    await until(async () => (await statusOf('stray')) === 'DEAD', { timeoutMs: 30_000 })
    expect(await Promise.all(['a', 'b', 'c'].map(statusOf))).toEqual(['NEW', 'NEW', 'NEW'])
    await script().drain()
    expect(await Promise.all(['a', 'b', 'c'].map(statusOf))).toEqual(['DONE', 'DONE', 'DONE'])
  })

  it('the new release works on the old schema, beside the old one and while it migrates', {
    timeout: 60_000,
  }, async () => {
    const world = await newWorld()
    const table = unmigrated(world)
    old.migrate(world.url, table)
    const worker = await startWorker({ url: world.url, table }, { ...SETTINGS, release: old.folder })
    const release = newRelease(world.url, table)
    const { outbox } = release
    const missing = outbox.store.migrations().flatMap(({ version }) => (version > 1 ? [version] : []))
    expect((await outbox.store.pendingMigrations()).map(({ version }) => version)).toEqual(missing)
    await outbox.start()
    await workTogether(release, worker, 'before')
    const [versions] = await Promise.all([outbox.migrate(), workTogether(release, worker, 'while')])
    expect(versions).toEqual(missing)
    await workTogether(release, worker, 'after')
    await world.pool.query(`select ${table}_publish('any.thing', event_id => 'by-sql')`)
    await until(() => [...release.handled, ...worker.ids('ended')].includes('by-sql'))
  })

  it('who polls by hand keeps out of ranges that came with a migration of somebody else', async () => {
    const world = await newWorld()
    const table = unmigrated(world)
    old.migrate(world.url, table)
    const byHand = newRelease(world.url, table)
    await byHand.outbox.enqueue({ type: 'a', eventId: 'first', payload: {} })
    await byHand.outbox.poll()
    await until(() => byHand.handled.includes('first'))
    const store = postgresStore(world.pool, { table })
    await store.migrate()
    await world.pool.query(fill(1_000).replace('outbox_event', table))
    const held = (await store.claim(claimOf('other:1', { leaseMs: 60_000 }))).rows.map((row) => row.eventId)
    expect(held).toHaveLength(100)
    expect(await byHand.outbox.poll()).toBeGreaterThan(0)
    expect(byHand.handled.filter((id) => held.includes(id))).toEqual([])
  })

  it('an old process that is killed is taken over by a new one, and the other way round', {
    timeout: 60_000,
  }, async () => {
    const world = await newWorld()
    const settings = { ...SETTINGS, poller: { ...SETTINGS.poller, leaseMs: 1_000 } }
    const hanging = [{ type: 'any.thing', eventId: 'held-by-old', payload: { act: 'hang' } }]
    const oldOne = await startWorker(world, { ...settings, release: old.folder })
    oldOne.order('publish', { events: hanging })
    await until(() => oldOne.ids('started').includes('held-by-old'))
    const newOne = await startWorker(world, { ...settings, hangs: false })
    await oldOne.kill()
    await until(() => newOne.ids('ended').includes('held-by-old'))

    const hangs = await startWorker(world, settings)
    hangs.order('publish', { events: [{ ...hanging[0], eventId: 'held-by-new' }] })
    await until(() => hangs.ids('started').includes('held-by-new'))
    await newOne.kill()
    const heir = await startWorker(world, { ...settings, hangs: false, release: old.folder })
    await hangs.kill()
    await until(() => heir.ids('ended').includes('held-by-new'))
  })

  it('this release works on a schema from the future, which only adds', async () => {
    const world = await newWorld()
    await world.pool.query(`
      alter table ${world.table} add column priority int not null default 5, add column note text;
      create index on ${world.table} (priority) where status in (0, 2);
      create table ${world.table}_more (id int);
      insert into ${world.table}_migration (version, name) values (999, 'from the future')`)
    const { outbox, handled } = newRelease(world.url, world.table)
    expect(await outbox.migrate()).toEqual([])
    await outbox.start()
    await outbox.transaction((tx) => tx.publishAll(events(30, 'f')))
    await until(() => handled.length === 30)
    await until(async () => (await outbox.stats()).pending === 0)
  })
})

describe('migrations', () => {
  onEveryPostgres('ten instances that start at once', (newWorld) => {
    it('apply each migration once', async () => {
      const world = await newWorld()
      const table = `m_${randomBytes(6).toString('hex')}`
      const stores = Array.from({ length: 10 }, () => postgresStore(world.pool, { table }))
      const applied = await Promise.all(stores.map((store) => store.migrate()))
      expect(applied.flat().sort()).toEqual(stores[0]?.migrations().map(({ version }) => version))
      expect(await stores[0]?.pendingMigrations()).toEqual([])
    })
  })
})
