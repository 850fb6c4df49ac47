import { describe, expect, it } from 'vitest'
import { event, migratedDatabase, outboxOn, poolOn, rowsIn } from '../support/trap-kit.js'
import { signal, until } from '../support/waiting.js'

/** A handler that never returns keeps its lease, is never run beside itself, and is pointed out. */

const poller = { leaseMs: 300, pollIntervalMs: 50 }

describe('a handler that never returns', () => {
  it('keeps its lease over several lease times; no instance runs the event a second time', async () => {
    const url = await migratedDatabase()
    const observer = poolOn(url, { max: 1 })
    const runs: string[] = []
    const never = signal()
    const instances = [1, 2].map((n) => {
      const { outbox, log } = outboxOn(poolOn(url), { poller })
      outbox.on('thing.happened', 'hang', () => {
        runs.push(`instance ${n}`)
        return never.promise
      })
      return { outbox, log }
    })
    const [first, second] = instances as [(typeof instances)[0], (typeof instances)[0]]
    await first.outbox.start()
    await first.outbox.enqueue(event())
    await until('it runs', () => runs.length === 1)
    await second.outbox.start()
    const began = performance.now()
    await until('five leases have gone by', async () => {
      const [row] = await rowsIn(observer)
      expect(row).toMatchObject({ leased: true, status: 0, attempts: 0 })
      return performance.now() - began > 5 * poller.leaseMs
    })
    await second.outbox.poll()
    expect(runs).toEqual(['instance 1'])
    expect([...first.log.matching(/lease was lost/), ...second.log.matching(/lease was lost/)]).toEqual([])

    never.give()
    await until('it is settled', async () => (await rowsIn(observer))[0]?.status === 1)
    expect(runs).toEqual(['instance 1'])
  })

  it('shows in health and in one log line after stuckAfterMs, and no longer once it has returned', async () => {
    const pool = poolOn(await migratedDatabase())
    const { outbox, log } = outboxOn(pool, { poller, dispatcher: { stuckAfterMs: 250 } })
    const running = signal()
    const release = signal()
    outbox.on('thing.happened', 'hang', () => {
      running.give()
      return release.promise
    })
    await outbox.start()
    const id = await outbox.enqueue(event())
    await running.promise
    expect((await outbox.health()).stuck).toEqual([])
    await until('health shows it', async () => (await outbox.health()).stuck.includes(id))
    const health = await outbox.health()
    expect(health.ok).toBe(false)
    expect(health).toMatchObject({ live: true, ready: true, problems: [{ code: 'HANDLERS_STUCK' }] })
    await until('the log shows it', () => log.matching(/has not returned/).length > 0)
    const leased = async () =>
      (await pool.query('select locked_until from outbox_event')).rows[0].locked_until.getTime() as number
    const before = await leased()
    await until('its lease is renewed twice more', async () => (await leased()) > before + poller.leaseMs / 2)
    const lines = log.matching(/has not returned/)
    expect(lines).toHaveLength(1)
    expect(lines[0]).toMatchObject({ level: 'warn', event_id: id, event_type: 'thing.happened' })
    release.give()
    await until('health is well again', async () => (await outbox.health()).ok)
  })

  it('does not keep the other workers from their events', async () => {
    const { outbox } = outboxOn(poolOn(await migratedDatabase()), { poller, dispatcher: { concurrency: 2 } })
    const hanging = signal()
    const never = signal()
    let others = 0
    outbox.on('hang', 'hang', () => {
      hanging.give()
      return never.promise
    })
    outbox.on('other', 'count', () => void others++)
    await outbox.start()
    await outbox.enqueue(event('hang'))
    await hanging.promise
    for (let n = 0; n < 20; n++) await outbox.enqueue(event('other'))
    await until('the others are handled', () => others === 20)
    never.give()
  })

  it('is not run beside itself in the same process after its lease was lost', async () => {
    const url = await migratedDatabase()
    const observer = poolOn(url, { max: 1 })
    const { outbox } = outboxOn(poolOn(url), { poller })
    let running = 0
    let most = 0
    let runs = 0
    const aborted = signal()
    const release = signal()
    outbox.on('thing.happened', 'hang', async (_event, { signal: abort }) => {
      runs++
      most = Math.max(most, ++running)
      if (runs === 1) {
        abort.addEventListener('abort', () => aborted.give())
        await release.promise
      }
      running--
    })
    await outbox.start()
    await outbox.enqueue(event())
    await until('it runs', () => running === 1)
    await observer.query(
      `update outbox_event set locked_by = 'someone else', locked_until = clock_timestamp()`,
    )
    await aborted.promise
    // The row is free now: the poller finds it again and again while the first run goes on.
    const began = performance.now()
    await until('the poller had its chances', () => performance.now() - began > 1_500)
    expect(most).toBe(1)
    release.give()
    await until('it is settled', async () => (await rowsIn(observer))[0]?.status === 1)
    expect(most).toBe(1)
  })
})
