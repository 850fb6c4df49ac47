import type pg from 'pg'
import { describe, expect, it } from 'vitest'
import { PoolTooSmallError } from '../../src/index.js'
import { event, migratedDatabase, outboxOn, poolOn, rowsIn } from '../support/trap-kit.js'
import { signal, until, within } from '../support/waiting.js'

/** The application may use up its pool; the outbox goes on, on connections of its own. */

/** Opens transactions until the pool has nothing left to give. */
async function exhaust(pool: pg.Pool, connections: number): Promise<() => Promise<void>> {
  const held: pg.PoolClient[] = []
  for (let n = 0; n < connections; n++) {
    const client = await within(`connection ${n + 1} for the application`, pool.connect(), 5_000)
    await client.query('begin')
    held.push(client)
  }
  expect(pool.totalCount - pool.idleCount).toBe(pool.options.max)
  return async () => {
    for (const client of held.splice(0)) {
      await client.query('rollback')
      client.release()
    }
  }
}

describe('while the application holds every connection of the pool', () => {
  it('events are claimed, handled, settled, and leases renewed', async () => {
    const url = await migratedDatabase()
    const observer = poolOn(url, { max: 2 })
    const pool = poolOn(url, { max: 6 })
    const { outbox, log } = outboxOn(pool, { poller: { leaseMs: 900, pollIntervalMs: 100 } })
    const writer = outboxOn(observer, {}, { doorbell: false }).outbox
    const handled: string[] = []
    const slow = signal()
    outbox.on('quick', 'see', (one) => void handled.push(one.eventId))
    outbox.on('slow', 'wait', () => slow.promise)
    await outbox.start()
    const giveBack = await exhaust(pool, 3)
    try {
      const slowId = await writer.enqueue(event('slow'))
      const quick = await writer.enqueue(event('quick'))
      await until('the quick one is settled', async () =>
        (await rowsIn(observer)).some((row) => row.event_id === quick && row.status === 1),
      )
      expect(handled).toEqual([quick])
      const first = await leaseOf(observer, slowId)
      await until('the lease is renewed twice', async () => (await leaseOf(observer, slowId)) > first + 700)
      expect((await outbox.health()).ok).toBe(true)
      expect((await outbox.stats()).pending).toBe(1)
      slow.give()
      await until('the slow one is settled', async () =>
        (await rowsIn(observer)).every((row) => row.status === 1),
      )
      expect(log.lines('warn')).toEqual([])
    } finally {
      await giveBack()
    }
  })

  it('the instance goes on showing that it is alive', async () => {
    const url = await migratedDatabase()
    const observer = poolOn(url, { max: 1 })
    const pool = poolOn(url, { max: 4 })
    const { outbox } = outboxOn(pool, { dispatcher: { unroutableGraceMs: 0 } })
    outbox.on('quick', 'see', () => {})
    await outbox.start()
    const giveBack = await exhaust(pool, 1)
    const seen = async (): Promise<number> => {
      const { rows } = await observer.query('select last_seen_at from outbox_event_instance')
      return rows[0].last_seen_at.getTime()
    }
    try {
      for (let beat = 1; beat <= 4; beat++) {
        const before = await seen()
        await until(`heartbeat ${beat}`, async () => (await seen()) > before, 3_000)
      }
    } finally {
      await giveBack()
    }
  })

  it('it stops in time', async () => {
    const pool = poolOn(await migratedDatabase(), { max: 5 })
    const { outbox } = outboxOn(pool)
    outbox.on('quick', 'see', () => {})
    await outbox.start()
    const giveBack = await exhaust(pool, 2)
    try {
      await within('stop', outbox.stop(), 3_000)
    } finally {
      await giveBack()
    }
  })
})

async function leaseOf(pool: pg.Pool, id: string): Promise<number> {
  const { rows } = await pool.query('select locked_until from outbox_event where event_id = $1', [id])
  return rows[0].locked_until?.getTime() ?? 0
}

describe('a pool that cannot serve the application as well', () => {
  it.each([
    [1, true, 4],
    [2, true, 4],
    [3, true, 4],
    [1, false, 3],
    [2, false, 3],
  ])('of %i (doorbell: %s) is refused at start; %i are needed', async (max, doorbell, needed) => {
    const pool = poolOn(await migratedDatabase(), { max })
    const { outbox } = outboxOn(pool, {}, { doorbell })
    const refused = outbox.start()
    await expect(refused).rejects.toBeInstanceOf(PoolTooSmallError)
    await expect(refused).rejects.toThrow(new RegExp(`\\b${max}\\b.*at least ${needed}\\b`))
    expect(pool.totalCount).toBe(pool.idleCount)
    await outbox.enqueue(event())
  })

  it.each([
    [4, true],
    [3, false],
  ])('does not include one of %i (doorbell: %s), which works', async (max, doorbell) => {
    const pool = poolOn(await migratedDatabase(), { max })
    const { outbox } = outboxOn(pool, {}, { doorbell })
    const handled: string[] = []
    outbox.on('quick', 'see', (one) => void handled.push(one.eventId))
    await outbox.start()
    const id = await outbox.enqueue(event('quick'))
    await until('it is handled', () => handled.includes(id))
    await outbox.drain()
  })
})
