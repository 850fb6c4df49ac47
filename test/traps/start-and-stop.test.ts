import { describe, expect, inject, it } from 'vitest'
import { StoreNotMigratedError } from '../../src/index.js'
import { startProxy } from '../support/proxy.js'
import { afterwards, emptyDatabase, event, migratedDatabase, outboxOn, poolOn } from '../support/trap-kit.js'
import { until, within } from '../support/waiting.js'

/** start() and stop() may be called in any number and order; the last call decides. */

async function ready(max = 8) {
  const pool = poolOn(await migratedDatabase(), { max })
  const { outbox, log } = outboxOn(pool)
  const handled: string[] = []
  outbox.on('thing.happened', 'see', (one) => void handled.push(one.eventId))
  const delivers = async () => {
    const id = await outbox.enqueue(event())
    await until('it is handled', () => handled.includes(id), 3_000)
  }
  const isIdle = () => pool.totalCount === pool.idleCount
  return { pool, outbox, log, handled, delivers, isIdle }
}

describe('start and stop', () => {
  it('are idempotent, one after the other and at the same time', async () => {
    const { outbox, pool, delivers, isIdle } = await ready()
    await Promise.all([outbox.start(), outbox.start(), outbox.start()])
    await outbox.start()
    expect(pool.totalCount - pool.idleCount).toBe(3)
    await delivers()
    await Promise.all([outbox.stop(), outbox.stop(), outbox.stop()])
    await outbox.stop()
    expect(isIdle()).toBe(true)
    const { rows } = await pool.query('select stopped_at is not null stopped from outbox_event_instance')
    expect(rows).toEqual([{ stopped: true }])
  })

  it('stop() without start() does nothing', async () => {
    const { outbox, isIdle } = await ready()
    await outbox.stop()
    expect(isIdle()).toBe(true)
  })

  it('start() after stop() delivers again', async () => {
    const { outbox, delivers, isIdle } = await ready()
    for (let round = 0; round < 3; round++) {
      await outbox.start()
      expect((await outbox.health()).started).toBe(true)
      await delivers()
      await outbox.stop()
      expect((await outbox.health()).started).toBe(false)
    }
    expect(isIdle()).toBe(true)
  })

  it('stop() during start() waits for it and then stops', async () => {
    const { outbox, isIdle } = await ready()
    const starting = outbox.start()
    await outbox.stop()
    await starting
    expect((await outbox.health()).started).toBe(false)
    expect(isIdle()).toBe(true)
  })

  it('start() during stop() waits for it and then starts', async () => {
    const { outbox, delivers } = await ready()
    await outbox.start()
    const stopping = outbox.stop()
    await outbox.start()
    await stopping
    expect((await outbox.health()).started).toBe(true)
    await delivers()
  })

  it('called in a heap end as the last call says: stopped', async () => {
    const { outbox, isIdle } = await ready()
    await outbox.start()
    await Promise.all([outbox.stop(), outbox.start(), outbox.stop()])
    expect((await outbox.health()).started).toBe(false)
    expect(isIdle()).toBe(true)
  })

  it('called in a heap end as the last call says: started', async () => {
    const { outbox, delivers } = await ready()
    await Promise.all([outbox.start(), outbox.stop(), outbox.start()])
    expect((await outbox.health()).started).toBe(true)
    await delivers()
  })

  it('by `await using` stops at the end of the block', async () => {
    const { outbox, isIdle } = await ready()
    await outbox.start()
    await outbox[Symbol.asyncDispose]()
    expect((await outbox.health()).started).toBe(false)
    expect(isIdle()).toBe(true)
  })

  it('leave publishing alone: a stopped outbox writes rows without a lease', async () => {
    const { outbox, pool } = await ready()
    await outbox.start()
    await outbox.stop()
    await outbox.enqueue(event())
    const { rows } = await pool.query('select status, locked_by from outbox_event')
    expect(rows).toEqual([{ status: 0, locked_by: null }])
  })
})

describe('a start that fails', () => {
  it('for want of the tables says so, leaves nothing behind, and works after migrate()', async () => {
    const pool = poolOn(await emptyDatabase())
    const { outbox } = outboxOn(pool)
    const handled: string[] = []
    outbox.on('thing.happened', 'see', (one) => void handled.push(one.eventId))
    const listeners = pool.listenerCount('error')
    await expect(outbox.start()).rejects.toBeInstanceOf(StoreNotMigratedError)
    await expect(outbox.start()).rejects.toThrow(/migrate/)
    expect(pool.totalCount).toBe(pool.idleCount)
    expect(pool.listenerCount('error')).toBe(listeners)
    expect((await outbox.health()).started).toBe(false)
    await outbox.migrate()
    await outbox.start()
    const id = await outbox.enqueue(event())
    await until('it is handled', () => handled.includes(id))
  })

  it('is not the only one that says so', async () => {
    const { outbox } = outboxOn(poolOn(await emptyDatabase()))
    outbox.on('thing.happened', 'see', () => {})
    const calls = [
      () => outbox.pause(),
      () => outbox.resume(),
      () => outbox.paused(),
      () => outbox.drain(),
      () => outbox.stats(),
      () => outbox.enqueue(event()),
      () => outbox.deadLetters.list(),
    ]
    for (const call of calls) await expect(call(), String(call)).rejects.toBeInstanceOf(StoreNotMigratedError)
  })

  it('names the schema of the option when that does not exist', async () => {
    const { outbox } = outboxOn(poolOn(await emptyDatabase()), {}, { schema: 'elsewhere' })
    await expect(outbox.start()).rejects.toMatchObject({ code: 'NO_SCHEMA' })
  })

  it('for want of the database rejects soon, leaves nothing behind, and works once it is back', async () => {
    const proxy = await startProxy(await migratedDatabase(inject('postgresUrl')))
    afterwards('close the proxy', () => proxy.close())
    const pool = poolOn(proxy.url)
    const { outbox } = outboxOn(pool)
    const handled: string[] = []
    outbox.on('thing.happened', 'see', (one) => void handled.push(one.eventId))
    const listeners = pool.listenerCount('error')
    proxy.refuse()
    await expect(within('start', outbox.start(), 5_000)).rejects.toThrow(/ECONN|terminated/)
    await outbox.stop()
    expect(pool.totalCount).toBe(0)
    expect(pool.listenerCount('error')).toBe(listeners)
    proxy.accept()
    await outbox.start()
    const id = await outbox.enqueue(event())
    await until('it is handled', () => handled.includes(id))
  })

  it('half-way gives back the connections that it took', async () => {
    const url = await migratedDatabase()
    const pool = poolOn(url)
    await pool.query('alter table outbox_event_instance rename to gone')
    const { outbox } = outboxOn(pool)
    const listeners = pool.listenerCount('error')
    await expect(outbox.start()).rejects.toThrow(/outbox_event_instance/)
    expect(pool.totalCount).toBe(pool.idleCount)
    expect(pool.listenerCount('error')).toBe(listeners)
    const { rows } = await pool.query(
      `select 1 from pg_stat_activity where datname = current_database() and query ilike 'listen%' and state = 'idle'`,
    )
    expect(rows).toEqual([])
  })

  it('at the same time as a stop rejects for the starter and resolves for the stopper', async () => {
    const { outbox } = outboxOn(poolOn(await emptyDatabase()))
    const starting = outbox.start()
    const stopping = outbox.stop()
    await expect(starting).rejects.toBeInstanceOf(StoreNotMigratedError)
    await expect(stopping).resolves.toBeUndefined()
  })
})
