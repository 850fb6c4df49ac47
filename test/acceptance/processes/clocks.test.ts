import { describe, expect, it } from 'vitest'
import { startWorker } from '../../support/child.js'
import { gate, until } from '../../support/until.js'
import { HOUR_MS, onEveryPostgres } from '../../support/world.js'

const event = (eventId: string, act = 'note') => ({ type: 'any.thing', eventId, payload: { act } })
const QUICK = { poller: { pollIntervalMs: 50, leaseMs: 30_000 } }

onEveryPostgres('a process whose clock is wrong', (newWorld) => {
  describe.each([
    ['an hour ahead', HOUR_MS],
    ['an hour behind', -HOUR_MS],
  ])('by being %s', (_name, skewMs) => {
    it('really has that clock, and handles what it publishes and what others publish', async () => {
      const world = await newWorld()
      const worker = await startWorker(world, { ...QUICK, skewMs })
      const { now = 0 } = await worker.hears((one) => one.told === 'ready')
      expect(Math.abs(now - Date.now() - skewMs)).toBeLessThan(60_000)
      worker.order('publish', { events: [event('own')] })
      await world.outbox().enqueue(event('of another'))
      await until(() => worker.ids('ended').length === 2)
      await until(async () => (await world.rows()).every((row) => row.status === 'DONE'))
    })

    it('does not steal a lease that holds', async () => {
      const world = await newWorld()
      const held = gate()
      const runs: string[] = []
      const owner = world.outbox({ poller: { leaseMs: 30_000 } })
      owner.on('any.thing', 'work', (one) => {
        runs.push(one.eventId)
        return held.opened
      })
      await owner.start()
      await owner.enqueue(event('mine'))
      await until(() => runs.length === 1)
      const worker = await startWorker(world, { ...QUICK, skewMs })
      await worker.sweeps(5)
      expect(worker.ids('started')).toEqual([])
      held.open()
      await owner.drain()
      expect(await world.rows()).toMatchObject([{ status: 'DONE', attempts: 0 }])
      expect(runs).toEqual(['mine'])
    })

    it('does not lose its own leases, hot or claimed', async () => {
      const world = await newWorld()
      const worker = await startWorker(world, { ...QUICK, skewMs })
      worker.order('publish', { events: [event('hot', 'hang')] })
      await worker.hears((one) => one.told === 'started' && one.id === 'hot')
      await world.outbox().enqueue(event('claimed', 'hang'))
      await worker.hears((one) => one.told === 'started' && one.id === 'claimed')
      const { rows } = await world.pool.query(
        `select locked_until - clock_timestamp() between interval '0 s' and interval '30 s' as sane from ${world.table}`,
      )
      expect(rows).toEqual([{ sane: true }, { sane: true }])
      const other = world.outbox()
      const stolen: string[] = []
      other.on('any.thing', 'work', (one) => void stolen.push(one.eventId))
      await other.drain()
      worker.order('release')
      await until(async () => (await world.rows()).every((row) => row.status === 'DONE'))
      expect(stolen).toEqual([])
    })

    it('delays by the time that really passes, its own events and those of others', async () => {
      const world = await newWorld()
      const worker = await startWorker(world, { ...QUICK, skewMs })
      worker.order('publish', { events: [event('own, in half an hour')], publish: { delayMs: HOUR_MS / 2 } })
      worker.order('publish', { events: [event('own, soon')], publish: { delayMs: 700 } })
      await worker.hears((one) => one.told === 'published')
      await world.outbox().enqueue(event('of another, in half an hour'), { delayMs: HOUR_MS / 2 })
      await worker.hears((one) => one.told === 'started' && one.id === 'own, soon')
      const { rows } = await world.pool.query(
        `select available_at <= clock_timestamp() as due, available_at - created_at >= interval '700 ms' as delayed
           from ${world.table} where event_id = 'own, soon'`,
      )
      expect(rows).toEqual([{ due: true, delayed: true }])
      await worker.sweeps(3)
      expect(worker.ids('started')).toEqual(['own, soon'])
    })

    it('hands an event over at the moment that deliverAt names, by the clock of the database', async () => {
      const world = await newWorld()
      const worker = await startWorker(world, { ...QUICK, skewMs })
      await world.outbox().enqueue(event('later'), { deliverAt: new Date(Date.now() + HOUR_MS / 2) })
      await world.outbox().enqueue(event('soon'), { deliverAt: new Date(Date.now() + 500) })
      await worker.hears((one) => one.told === 'started' && one.id === 'soon')
      const { rows } = await world.pool.query(
        `select available_at <= clock_timestamp() as due from ${world.table} where event_id = 'soon'`,
      )
      expect(rows).toEqual([{ due: true }])
      await worker.sweeps(3)
      expect(worker.ids('started')).toEqual(['soon'])
    })
  })
})
