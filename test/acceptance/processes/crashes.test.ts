import { expect, it } from 'vitest'
import { startWorker, Worker } from '../../support/child.js'
import { gate, until } from '../../support/until.js'
import { onEveryPostgres, type World } from '../../support/world.js'

const SHORT = { poller: { leaseMs: 600, pollIntervalMs: 50 } }
const event = (eventId: string, act = 'note') => ({ type: 'any.thing', eventId, payload: { act } })

/** The latest moment at which a lease of a row runs out, by the database's clock. */
async function leasedUntil(world: World): Promise<Date> {
  const { rows } = await world.pool.query<{ until: Date }>(
    `select max(locked_until) as until from ${world.table}`,
  )
  return rows[0]?.until as Date
}

onEveryPostgres('a process that is killed', (newWorld) => {
  it('in a handler is taken over once its lease has run out, and not before', async () => {
    const world = await newWorld()
    const victim = await startWorker(world, SHORT)
    await world.outbox().enqueue(event('e', 'hang'))
    await victim.hears((one) => one.told === 'started')
    const until = await leasedUntil(world)
    await victim.kill('SIGKILL')
    const heir = await startWorker(world, { ...SHORT, hangs: false })
    await heir.hears((one) => one.told === 'ended' && one.id === 'e')
    const { rows } = await world.pool.query<{ now: Date }>('select clock_timestamp() as now')
    expect(rows[0]?.now.getTime()).toBeGreaterThanOrEqual(until.getTime())
    await heir.sweeps(2)
    expect(await world.rows()).toMatchObject([{ status: 'DONE', attempts: 0 }])
  })

  it('with prefetched rows loses none of them, and charges none of them an attempt', async () => {
    const world = await newWorld()
    const writer = world.outbox()
    const ids = Array.from({ length: 20 }, (_, i) => `e-${i}`)
    await writer.transaction((tx) => tx.publishAll(ids.map((id, i) => event(id, i === 0 ? 'hang' : 'note'))))
    const victim = await startWorker(world, { ...SHORT, dispatcher: { concurrency: 1 } })
    await victim.hears((one) => one.told === 'started')
    await until(async () => (await world.rows()).every((row) => row.lockedBy !== null))
    await victim.kill('SIGKILL')
    const heir = await startWorker(world, { ...SHORT, hangs: false })
    await until(async () => (await world.rows()).every((row) => row.status === 'DONE'), { timeoutMs: 15_000 })
    expect(heir.ids('ended').toSorted()).toEqual(ids.toSorted())
    expect((await world.rows()).map((row) => row.attempts)).toEqual(ids.map(() => 0))
  })

  it('right after a commit, with the events in its hot queue, loses none of them', async () => {
    const world = await newWorld()
    const victim = await startWorker(world, { ...SHORT, dispatcher: { concurrency: 1 } })
    const ids = Array.from({ length: 20 }, (_, i) => `e-${i}`)
    victim.order('publish', { events: ids.map((id) => event(id, 'hang')) })
    await victim.hears((one) => one.told === 'started')
    await victim.kill('SIGKILL')
    expect((await world.rows()).every((row) => row.status === 'NEW' && row.lockedBy !== null)).toBe(true)
    const heir = await startWorker(world, { ...SHORT, hangs: false })
    await until(async () => (await world.rows()).every((row) => row.status === 'DONE'), { timeoutMs: 15_000 })
    expect(heir.ids('ended').toSorted()).toEqual(ids.toSorted())
  })

  it.each([1, 2])(
    'by one event again and again ends that event, not its neighbours (%i at a time)',
    { timeout: 60_000 },
    async (size) => {
      const world = await newWorld()
      const events = ['n-1', 'n-2', 'poison', 'n-3', 'n-4', 'n-5'].map((id) =>
        event(id, id === 'poison' ? 'die' : 'note'),
      )
      await world.outbox().transaction((tx) => tx.publishAll(events))
      const settings = { poller: { leaseMs: 1_000, pollIntervalMs: 50 }, maxAttempts: 3 }
      const settled = async () =>
        (await world.rows()).every((row) => row.status === 'DONE' || row.status === 'DEAD')
      let deaths = 0
      const supervise = async () => {
        while (!(await settled())) {
          const worker = new Worker(world, settings)
          await until(async () => !worker.isAlive || (await settled()), {
            timeoutMs: 30_000,
            what: 'the next death',
          })
          if (!worker.isAlive) deaths++
          await worker.kill('SIGKILL')
          if (deaths > 12) throw new Error('the poison goes on killing')
        }
      }
      await Promise.all(Array.from({ length: size }, supervise))

      const rows = await world.rows()
      expect(rows.find((row) => row.id === 'poison')).toMatchObject({
        status: 'DEAD',
        lastError: expect.stringContaining('ProcessDiedError'),
      })
      for (const row of rows.filter((one) => one.id !== 'poison'))
        expect(row).toMatchObject({ status: 'DONE', attempts: 0 })
      expect(deaths).toBeGreaterThanOrEqual(3)
      // Unnoticed at first, then once in a group of those that are tried again, and then alone until it has had its attempts.
      expect(deaths).toBeLessThanOrEqual(4 + size)
    },
  )
})

onEveryPostgres('what a dead process left behind', (newWorld) => {
  it('is not held up by one event of it whose handler does not return', async () => {
    const world = await newWorld()
    const ids = ['hung', 'e-1', 'e-2', 'e-3']
    await world.outbox().transaction((tx) => tx.publishAll(ids.map((id) => event(id))))
    await world.pool.query(
      `update ${world.table} set locked_by = 'dead:1', locked_until = now() - interval '1 s'`,
    )
    const heir = world.outbox({ poller: { leaseMs: 300, pollIntervalMs: 50 } })
    const held = gate()
    heir.on('any.thing', 'work', ({ eventId }) => (eventId === 'hung' ? held.opened : undefined))
    await heir.start()
    await until(async () => (await world.rows()).filter((row) => row.status === 'DONE').length === 3)
    held.open()
    await until(async () => (await world.rows()).every((row) => row.status === 'DONE' && row.attempts === 0))
  })
})

onEveryPostgres('a process that was stopped for longer than its lease', (newWorld) => {
  it('settles nothing when it goes on, is told so, and starts nothing by an old lease', async () => {
    const world = await newWorld()
    const stale = await startWorker(world, { ...SHORT, dispatcher: { concurrency: 1 } })
    const ids = ['hung', 'prefetched-1', 'prefetched-2']
    await world.outbox().transaction((tx) => tx.publishAll(ids.map((id) => event(id, 'hang'))))
    await stale.hears((one) => one.told === 'started')
    await until(async () => (await world.rows()).every((row) => row.lockedBy !== null))
    stale.signal('SIGSTOP')

    const owner = world.outbox({ poller: { leaseMs: 30_000, pollIntervalMs: 50 } })
    const held = gate()
    let runs = 0
    owner.on('any.thing', 'work', async ({ eventId }) => {
      if (eventId !== 'hung' || ++runs > 1) return
      await held.opened
      throw new Error('of the new owner')
    })
    await owner.start()
    await until(() => runs === 1)
    const hung = async () => (await world.rows()).find((row) => row.id === 'hung')
    const before = await hung()

    const heard = stale.told.length
    stale.signal('SIGCONT')
    await stale.hears(
      (one) => one.told === 'aborted' && one.code === 'LEASE_LOST',
      'the signal of the lost lease',
    )
    stale.order('release')
    await stale.hears((one) => one.told === 'ended' && one.id === 'hung')
    await stale.hears(
      (one) => one.told === 'log' && /before the outcome could be written/.test(one.message ?? ''),
    )
    expect(await hung()).toEqual(before)

    held.open()
    await until(async () => (await world.rows()).every((row) => row.status === 'DONE'))
    expect(await hung()).toMatchObject({
      attempts: 1,
      lastError: expect.stringContaining('of the new owner'),
    })
    // It may claim again like anybody, but must not go by what it held before.
    const since = stale.told.slice(heard)
    for (const [at, one] of since.entries()) {
      if (one.told !== 'started') continue
      const claimed = since
        .slice(0, at)
        .some((told) => told.told === 'claimed' && told.ids?.includes(one.id ?? ''))
      expect(claimed, `${one.id} was claimed anew before it was started`).toBe(true)
    }
  })
})
