import type pg from 'pg'
import { describe, expect, inject, it } from 'vitest'
import { startProxy, type TcpProxy } from '../support/proxy.js'
import { afterwards, event, migratedDatabase, outboxOn, poolOn, rowsIn } from '../support/trap-kit.js'
import { until, within } from '../support/waiting.js'
import { Worker } from '../support/worker.js'

/** A line that goes dead without a word, one way or both, and lines that are merely bad. */

async function behindProxy(): Promise<{ proxy: TcpProxy; direct: string; observer: pg.Pool }> {
  const direct = await migratedDatabase(inject('postgresUrl'))
  const proxy = await startProxy(direct)
  afterwards('close the proxy', () => proxy.close())
  return { proxy, direct, observer: poolOn(direct, { max: 2 }) }
}

async function insert(client: pg.Pool, id: string, ring = false): Promise<string> {
  const { rows } = await client.query(
    `insert into outbox_event (event_id, event_type, payload) values ($1, 'thing.happened', '1') returning seq`,
    [id],
  )
  if (ring) await client.query(`select pg_notify('outbox_event', $1)`, [rows[0].seq])
  return id
}

describe('every connection goes half-open', { timeout: 90_000 }, () => {
  it.each([
    ['both ways', []],
    ['towards the server', ['to-server']],
    ['towards the client', ['to-client']],
  ] as const)('%s: they are noticed and replaced, and work resumes', async (_way, ways) => {
    const { proxy, observer } = await behindProxy()
    const worker = await Worker.started({
      url: proxy.url,
      outbox: { poller: { pollIntervalMs: 500, leaseMs: 5_000 } },
    })
    await worker.untilHandled(await insert(observer, 'before'))
    proxy.halfOpen(...ways)
    await worker.untilHandled(await insert(observer, 'after'), 45_000)
    expect(worker.problems).toEqual([])
  })

  it('the doorbell as well: it is heard again', async () => {
    const { proxy, observer } = await behindProxy()
    const worker = await Worker.started({
      url: proxy.url,
      outbox: { poller: { pollIntervalMs: 4_000 } },
    })
    const isHeardSoon = async (id: string) => {
      await insert(observer, id, true)
      return worker.untilHandled(id, 1_000).then(
        () => true,
        () => false,
      )
    }
    expect(await isHeardSoon('before')).toBe(true)
    proxy.halfOpen()
    let rings = 0
    // Three in a row within a second each cannot be the poll interval of four seconds.
    await until(
      'the doorbell works again',
      async () => {
        for (let n = 0; n < 3; n++) if (!(await isHeardSoon(`after ${++rings}`))) return false
        return true
      },
      60_000,
    )
    expect(worker.problems).toEqual([])
  })

  it('and stays so: stop() still ends within thirty seconds', async () => {
    const { proxy, observer } = await behindProxy()
    const worker = await Worker.started({ url: proxy.url, outbox: { dispatcher: { drainTimeoutMs: 1_000 } } })
    await worker.untilHandled(await insert(observer, 'before'))
    proxy.freeze()
    const began = performance.now()
    await worker.ask('stop')
    expect(performance.now() - began).toBeLessThan(30_000)
    expect(worker.problems).toEqual([])
  })
})

describe('a bad line', () => {
  it('of one byte at a time delivers hot and cold', async () => {
    const { proxy, observer } = await behindProxy()
    proxy.dribble(true)
    const { outbox, log } = outboxOn(poolOn(proxy.url))
    const handled: string[] = []
    outbox.on('thing.happened', 'see', (one) => void handled.push(one.eventId))
    await outbox.start()
    const hot = await outbox.enqueue(event('thing.happened', { text: 'Zürich 🚂' }))
    const cold = await insert(observer, 'cold')
    await until('both are handled', () => handled.includes(hot) && handled.includes(cold))
    await outbox.drain()
    expect((await rowsIn(observer)).every((row) => row.status === 1)).toBe(true)
    expect(log.lines('warn')).toEqual([])
  })

  it('of 100 ms each way does not cost leases, nor run anything twice', async () => {
    const { proxy, observer } = await behindProxy()
    proxy.delay(100)
    const { outbox, log } = outboxOn(poolOn(proxy.url), { poller: { leaseMs: 1_500, pollIntervalMs: 200 } })
    const handled: string[] = []
    outbox.on('thing.happened', 'see', (one) => void handled.push(one.eventId))
    await outbox.start()
    const ids = await outbox.transaction((tx) => tx.publishAll(Array.from({ length: 50 }, () => event())))
    for (let n = 0; n < 50; n++) ids.push((await insert(observer, `cold ${n}`)) as (typeof ids)[0])
    await until(
      'all are settled',
      async () => (await rowsIn(observer)).every((row) => row.status === 1),
      20_000,
    )
    expect(handled.sort()).toEqual([...ids].sort())
    expect(log.matching(/lease was lost/)).toEqual([])
  })

  it('that is cut every few moments loses nothing', { timeout: 60_000 }, async () => {
    const { proxy, observer } = await behindProxy()
    const { outbox } = outboxOn(poolOn(proxy.url), { poller: { leaseMs: 1_000, pollIntervalMs: 100 } })
    const handled = new Set<string>()
    outbox.on('thing.happened', 'see', (one) => void handled.add(one.eventId))
    await outbox.start()
    const ids: string[] = []
    for (let round = 0; round < 10; round++) {
      for (let n = 0; n < 5; n++) ids.push(await insert(observer, `${round} ${n}`))
      const [last] = ids.slice(-1) as [string]
      if (round % 2 === 0) await until('the round is handled', () => handled.has(last), 20_000)
      proxy.cut()
    }
    await until(
      'all are settled',
      async () => (await rowsIn(observer)).every((row) => row.status === 1),
      30_000,
    )
    expect(ids.filter((id) => !handled.has(id))).toEqual([])
  })
})

describe('the reply to a settle is lost', () => {
  it('of a success: the event is done and not handled again', async () => {
    const { proxy, observer } = await behindProxy()
    const { outbox } = outboxOn(poolOn(proxy.url), { poller: { leaseMs: 1_000, pollIntervalMs: 100 } })
    const handled: string[] = []
    outbox.on('thing.happened', 'see', (one) => void handled.push(one.eventId))
    await outbox.start()
    const caught = proxy.cutAfter(({ text }) => /status = 1, done_at/.test(text))
    await outbox.enqueue(event())
    await within('the settle is cut', caught, 5_000)
    await outbox.enqueue(event())
    await until('both are done', async () => (await rowsIn(observer)).every((row) => row.status === 1))
    await outbox.drain()
    expect(handled).toHaveLength(2)
    expect((await outbox.stats()).done).toBe(2)
  })

  it('of a death: it is still announced, once', async () => {
    const { proxy, observer } = await behindProxy()
    const announced: string[] = []
    const { outbox, log } = outboxOn(poolOn(proxy.url), {
      poller: { leaseMs: 1_000, pollIntervalMs: 100 },
      retry: { maxAttempts: 1 },
      onDead: (dead) => announced.push(dead.eventId),
    })
    outbox.on('thing.happened', 'fail', () => {
      throw new Error('always')
    })
    await outbox.start()
    const caught = proxy.cutAfter(({ text }) => /json_to_recordset.*for update of e/s.test(text))
    const id = await outbox.enqueue(event())
    await within('the settle is cut', caught, 5_000)
    await until('it is dead', async () => (await rowsIn(observer))[0]?.status === 3)
    await until('it is announced', () => announced.length > 0, 5_000)
    await outbox.drain()
    expect(announced).toEqual([id])
    expect(log.matching(/event is dead/)).toHaveLength(1)
  })
})
