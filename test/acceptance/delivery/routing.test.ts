import { expect, it } from 'vitest'
import { defineEvent } from '../../../src/index.js'
import { counted } from '../../support/recording.js'
import { until } from '../../support/until.js'
import { HOUR_MS, onEveryPostgres, type World } from '../../support/world.js'

const AtOnce = { unroutableGraceMs: 0 }

async function insert(world: World, id: string, type: string, version = 1, ageMs = 0): Promise<void> {
  await world.pool.query(
    `insert into ${world.table} (event_id, event_type, version, payload, created_at, available_at)
     select $1, $2, $3, '{}', t, t from (select clock_timestamp() - $4::float8 * interval '1 ms' as t) s`,
    [id, type, version, ageMs],
  )
}

onEveryPostgres('an event that nobody handles', (newWorld) => {
  it('is DEAD without retries, at once when there is no grace', async () => {
    const world = await newWorld()
    const outbox = world.outbox({ dispatcher: AtOnce })
    outbox.on('known.thing', 'note', () => {})
    await insert(world, 'stray', 'unknown.thing')
    await outbox.start()
    await outbox.drain()
    expect(await world.rows()).toMatchObject([
      { status: 'DEAD', lastError: expect.stringContaining('UnroutableEventError') },
    ])
  })

  it('is found by a started outbox as well', async () => {
    const world = await newWorld()
    const outbox = world.outbox({ dispatcher: AtOnce, poller: { pollIntervalMs: 50 } })
    outbox.on('known.thing', 'note', () => {})
    await outbox.start()
    await insert(world, 'stray', 'unknown.thing')
    await until(async () => (await world.rows())[0]?.status === 'DEAD')
  })

  it('is left alone until it is older than the grace', async () => {
    const world = await newWorld()
    const outbox = world.outbox({ dispatcher: { unroutableGraceMs: 60_000 } })
    outbox.on('known.thing', 'note', () => {})
    await insert(world, 'young', 'unknown.thing', 1, 50_000)
    await insert(world, 'old', 'unknown.thing', 1, 70_000)
    await outbox.start()
    await outbox.drain()
    expect(await world.rows()).toMatchObject([
      { id: 'young', status: 'NEW', attempts: 0 },
      { id: 'old', status: 'DEAD' },
    ])
  })

  it("is tried again with backoff in 'retry' mode, until its attempts are used up", async () => {
    const world = await newWorld()
    const dispatcher = { ...AtOnce, onUnroutable: 'retry' as const }
    const outbox = world.outbox({ dispatcher, retry: { maxAttempts: 3 } })
    outbox.on('known.thing', 'note', () => {})
    await insert(world, 'stray', 'unknown.thing')
    await outbox.start()
    await outbox.poll()
    expect(await world.rows()).toMatchObject([{ attempts: 1, status: 'RETRY' }])
    await outbox.drain()
    expect(await world.rows()).toMatchObject([{ attempts: 3, status: 'DEAD' }])
  })

  it("is handled after all in 'retry' mode, when a handler appears in time", async () => {
    const world = await newWorld()
    const outbox = world.outbox({ dispatcher: { ...AtOnce, onUnroutable: 'retry' } })
    outbox.on('known.thing', 'note', () => {})
    await insert(world, 'stray', 'unknown.thing')
    await outbox.start()
    await outbox.poll()
    outbox.on('unknown.thing', 'late', () => {})
    await outbox.drain()
    expect(await world.rows()).toMatchObject([{ status: 'DONE' }])
  })

  it('is never declared dead while another instance is registered for it, even a stopped one', async () => {
    const world = await newWorld()
    const other = world.outbox()
    other.on('their.*', 'note', () => {})
    await other.start()
    await other.stop()
    const outbox = world.outbox({ dispatcher: AtOnce })
    outbox.on('known.thing', 'note', () => {})
    await insert(world, 'theirs', 'their.thing', 1, HOUR_MS)
    await outbox.start()
    await outbox.drain()
    expect(await world.rows()).toMatchObject([{ status: 'NEW', attempts: 0 }])
    await other.start()
    await until(async () => (await world.rows())[0]?.status === 'DONE')
  })

  it('is declared dead once its last registration is more than seven days old', async () => {
    const world = await newWorld()
    const other = world.outbox()
    other.on('their.*', 'note', () => {})
    await other.start()
    await other.stop()
    await world.pool.query(`update ${world.table}_instance set last_seen_at = now() - interval '8 days'`)
    const outbox = world.outbox({ dispatcher: AtOnce })
    outbox.on('known.thing', 'note', () => {})
    await insert(world, 'theirs', 'their.thing')
    await outbox.start()
    await outbox.drain()
    expect(await world.rows()).toMatchObject([{ status: 'DEAD' }])
  })

  it('is declared dead also when a process died while it held the row', async () => {
    const world = await newWorld()
    const outbox = world.outbox({ dispatcher: AtOnce })
    outbox.on('known.thing', 'note', () => {})
    await insert(world, 'stray', 'unknown.thing', 1, HOUR_MS)
    await world.pool.query(
      `update ${world.table} set locked_by = 'gone:1', locked_until = now() - interval '1 min'`,
    )
    await outbox.start()
    await outbox.drain()
    expect(await world.rows()).toMatchObject([{ status: 'DEAD' }])
  })

  it('is not touched by an instance that has no handlers at all', async () => {
    const world = await newWorld()
    const outbox = world.outbox({ poller: { pollIntervalMs: 50 } })
    await outbox.start()
    await insert(world, 'young', 'unknown.thing')
    expect(await outbox.poll()).toBe(0)
    expect(await world.rows()).toMatchObject([{ status: 'NEW', lockedBy: null }])
  })
})

onEveryPostgres('versions of an event', (newWorld) => {
  const V1 = defineEvent<{ a?: number }>('changing.thing', { version: 1 })
  const V2 = defineEvent<{ b?: number }>('changing.thing', { version: 2, upcast: () => ({ b: 1 }) })

  it('an instance that knows version 1 leaves version 2 to one that knows it', async () => {
    const world = await newWorld()
    const seen: string[] = []
    let claims = () => 0
    const old = world.outbox({
      poller: { pollIntervalMs: 50 },
      wrap: (store) => {
        const watched = counted(store)
        claims = () => watched.calls('claim')
        return watched.store
      },
    })
    old.on(V1, 'note', (event) => void seen.push(`old got ${event.version}`))
    await old.start()
    await insert(world, 'two', 'changing.thing', 2)
    await insert(world, 'one', 'changing.thing', 1)
    await until(() => seen.length === 1 && claims() > 4)
    expect(await world.rows()).toMatchObject([
      { id: 'two', status: 'NEW', attempts: 0 },
      { id: 'one', status: 'DONE' },
    ])
    const young = world.outbox()
    young.on(V2, 'note', (event) => void seen.push(`new got ${event.version}`))
    await young.start()
    await until(() => seen.length === 2)
    expect(seen).toEqual(['old got 1', 'new got 2'])
  })

  it('the newer instance reads the older version, as its upcast says', async () => {
    const world = await newWorld()
    const young = world.outbox()
    const seen: unknown[] = []
    young.on(V2, 'note', (event) => void seen.push(event.payload))
    await insert(world, 'one', 'changing.thing', 1)
    await young.drain()
    expect(seen).toEqual([{ b: 1 }])
  })

  it('a newer version is not dead while its type has handlers: the rolling deploy may take a while', async () => {
    const world = await newWorld()
    const old = world.outbox({ dispatcher: AtOnce })
    old.on(V1, 'note', () => {})
    await insert(world, 'two', 'changing.thing', 2, 10 * 60_000)
    await old.start()
    await old.drain()
    expect(await world.rows()).toMatchObject([{ status: 'NEW', attempts: 0 }])
  })
})
