import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { defineEvent, fixedDelay } from '../../../src/index.js'
import { recordingLogger } from '../../support/recording.js'
import { gate, until } from '../../support/until.js'
import { HOUR_MS, OrderPlaced, onEveryPostgres, type World } from '../../support/world.js'

const order = (orderId: string) => OrderPlaced({ orderId }, { eventId: orderId })

async function failuresOf(
  world: World,
): Promise<{ at: string; handler: string; instance: string; message: string }[]> {
  const { rows } = await world.pool.query(`select failures from ${world.table}`)
  return rows[0]?.failures ?? []
}

onEveryPostgres('a handler that fails', (newWorld) => {
  it('goes to RETRY with its attempts counted, and to DEAD after the last one, announced once', async () => {
    const world = await newWorld()
    const logger = recordingLogger()
    const dead: unknown[] = []
    const outbox = world.outbox({
      logger,
      retry: { maxAttempts: 3, policy: fixedDelay(0) },
      onDead: (event, error) => void dead.push([event, error]),
    })
    const attempts: number[] = []
    outbox.on(OrderPlaced, 'fail', (_event, { attempt }) => {
      attempts.push(attempt)
      throw new Error(`failure ${attempt}`)
    })
    await outbox.enqueue(order('o-1'))

    expect(await outbox.consumeOne()).toBe(true)
    expect(await world.rows()).toMatchObject([{ status: 'RETRY', attempts: 1, lockedBy: null }])
    expect(await outbox.consumeOne()).toBe(true)
    expect(await world.rows()).toMatchObject([{ status: 'RETRY', attempts: 2 }])
    expect(dead).toEqual([])
    expect(await outbox.consumeOne()).toBe(true)
    expect(await world.rows()).toMatchObject([{ status: 'DEAD', attempts: 3, lockedBy: null }])
    expect(await outbox.consumeOne()).toBe(false)

    expect(attempts).toEqual([1, 2, 3])
    expect((await world.rows())[0]?.lastError).toContain('failure 3')
    expect(dead).toEqual([
      [{ eventId: 'o-1', eventType: 'order.placed' }, expect.stringContaining('failure 3')],
    ])
    const errors = logger.lines.filter((line) => line.level === 'error')
    expect(errors).toHaveLength(1)
    expect(errors[0]?.fields).toMatchObject({
      event_id: 'o-1',
      event_type: 'order.placed',
      attempt: 3,
      outcome: 'dead',
    })
    expect(errors[0]?.fields.error_message).toContain('failure 3')
  })

  it('keeps the story of the last ten failures with the row', async () => {
    const world = await newWorld()
    const outbox = world.outbox({ retry: { maxAttempts: 13, policy: fixedDelay(0) } })
    outbox.on(OrderPlaced, 'fail', (_event, { attempt }) => {
      throw new RangeError(`failure ${attempt}`)
    })
    await outbox.enqueue(order('o-1'))
    await outbox.drain()
    const failures = await failuresOf(world)
    expect(failures).toHaveLength(10)
    expect(failures.map((one) => one.message)).toEqual(
      Array.from({ length: 10 }, (_, i) => `RangeError: failure ${i + 4}`),
    )
    expect(failures[0]).toMatchObject({ handler: 'fail', instance: outbox.instanceId })
    expect(new Date(failures[0]?.at ?? '').getTime()).toBeGreaterThan(0)
  })

  it('waits as long as the policy says, by the clock of the database', async () => {
    const world = await newWorld()
    const outbox = world.outbox({ retry: { policy: fixedDelay(HOUR_MS) } })
    outbox.on(OrderPlaced, 'fail', () => Promise.reject(new Error('no')))
    await outbox.enqueue(order('o-1'))
    await outbox.drain()
    const { rows } = await world.pool.query(
      `select available_at - clock_timestamp() between interval '59 min' and interval '60 min' as later from ${world.table}`,
    )
    expect(rows).toEqual([{ later: true }])
  })

  it('succeeds in a later attempt, by itself, without a poll interval', async () => {
    const world = await newWorld()
    const outbox = world.outbox({ retry: { policy: fixedDelay(20) } })
    outbox.on(OrderPlaced, 'third time lucky', (_event, { attempt }) => {
      if (attempt < 3) throw new Error('not yet')
    })
    await outbox.start()
    await outbox.enqueue(order('o-1'))
    await until(async () => (await world.rows())[0]?.status === 'DONE')
    expect(await world.rows()).toMatchObject([{ attempts: 2 }])
  })

  it('does not lose the event to a retry policy that throws or answers nonsense', async () => {
    const world = await newWorld()
    const answers = [Number.NaN, -5]
    const policy = {
      delayMs: () => {
        const answer = answers.pop()
        if (answer === undefined) throw new Error('policy')
        return answer
      },
    }
    const outbox = world.outbox({ retry: { policy } })
    outbox.on(OrderPlaced, 'fail', () => Promise.reject(new Error('no')))
    for (const id of ['a', 'b', 'c']) await outbox.enqueue(order(id))
    await outbox.drain()
    expect((await world.rows()).map((row) => row.status)).toEqual(['RETRY', 'RETRY', 'RETRY'])
  })

  it('survives an onDead hook that throws', async () => {
    const world = await newWorld()
    const logger = recordingLogger()
    const outbox = world.outbox({
      logger,
      retry: { maxAttempts: 1 },
      onDead: () => {
        throw new Error('of the hook')
      },
    })
    outbox.on(OrderPlaced, 'fail', () => Promise.reject(new Error('no')))
    await outbox.enqueue(order('o-1'))
    await outbox.drain()
    await until(() => logger.lines.some((line) => line.fields.error_message === 'of the hook'))
    expect(await world.rows()).toMatchObject([{ status: 'DEAD' }])
  })

  const unreadable = new Proxy(
    {},
    {
      get: () => {
        throw new Error('trap')
      },
      ownKeys: () => {
        throw new Error('trap')
      },
    },
  )
  describe.each([
    ['null', null, 'null'],
    ['undefined', undefined, 'undefined'],
    ['a string', 'just text', 'just text'],
    ['a symbol', Symbol('sign'), 'Symbol(sign)'],
    ['NUL and ANSI text', { message: 'a\0b \u001b[31mred\u001b[0m \ud800' }, 'red'],
    ['a megabyte', new Error('m'.repeat(1_048_576)), 'mmm'],
    ['something unreadable', unreadable, ''],
    ['a function', () => 'called', ''],
    ['an error with hostile fields', Object.assign(new Error('ok'), { name: 42, stack: null }), 'ok'],
  ])('throwing %s', (_what, thrown, expected) => {
    it('is recorded like any other failure', async () => {
      const world = await newWorld()
      const logger = recordingLogger()
      const outbox = world.outbox({ logger, retry: { maxAttempts: 1 } })
      outbox.on(OrderPlaced, 'throw', () => {
        throw thrown
      })
      await outbox.enqueue(order('o-1'))
      await outbox.drain()
      const [row] = await world.rows()
      expect(row).toMatchObject({ status: 'DEAD', attempts: 1 })
      expect(row?.lastError).toContain(expected)
      expect(row?.lastError?.length).toBeLessThanOrEqual(4_000)
      expect(row?.lastError).not.toContain('\0')
      expect((await failuresOf(world))[0]?.message).toContain(expected)
      for (const line of logger.lines) expect(JSON.stringify(line).length).toBeLessThan(2_000)
    })
  })
})

onEveryPostgres('a handler that takes too long', (newWorld) => {
  it('counts as failed after its timeout, its signal fires, and it never runs beside itself', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    const held = gate()
    let running = 0
    let most = 0
    const aborted: unknown[] = []
    outbox.on(
      OrderPlaced,
      'slow',
      async (_event, { attempt, signal }) => {
        most = Math.max(most, ++running)
        signal.addEventListener('abort', () => aborted.push(signal.reason))
        if (attempt === 1) await held.opened
        running--
      },
      { timeoutMs: 50 },
    )
    await outbox.start()
    await outbox.enqueue(order('o-1'))
    await until(async () => (await world.rows())[0]?.status === 'RETRY')
    expect(await world.rows()).toMatchObject([{ attempts: 1, lastError: expect.stringContaining('50 ms') }])
    expect(aborted).toMatchObject([{ code: 'HANDLER_TIMEOUT' }])
    held.open()
    await until(async () => (await world.rows())[0]?.status === 'DONE')
    expect(most).toBe(1)
  })
})

onEveryPostgres('a row that cannot be read', (newWorld) => {
  const Strict = defineEvent('strict.thing', { schema: z.object({ at: z.coerce.date() }) })

  it('goes to DEAD with the reason, without its data, and the poller goes on', async () => {
    const world = await newWorld()
    const logger = recordingLogger()
    const outbox = world.outbox({ logger, poller: { pollIntervalMs: 50 } })
    const handled: unknown[] = []
    outbox.on(Strict, 'note', (event) => void handled.push(event.payload.at.getTime()))
    const insert = `insert into ${world.table} (event_id, event_type, payload) values ($1, 'strict.thing', $2)`
    await world.pool.query(insert, ['bad', '{"at": "secret words"}'])
    await world.pool.query(insert, ['worse', null])
    await world.pool.query(insert, ['good', '{"at": "2020-01-01T00:00:00Z"}'])
    await outbox.start()
    await until(async () => (await world.rows()).every((row) => row.status !== 'NEW'))
    expect(await world.rows()).toMatchObject([
      { id: 'bad', status: 'DEAD', lastError: expect.stringContaining('does not match its schema') },
      { id: 'worse', status: 'DEAD', lastError: expect.stringContaining('EventValidationError') },
      { id: 'good', status: 'DONE' },
    ])
    expect(handled).toEqual([Date.UTC(2020, 0, 1)])
    expect(JSON.stringify([await world.rows(), logger.lines])).not.toContain('secret')
    await outbox.enqueue(Strict({ at: new Date(7) }))
    await until(() => handled.includes(7))
  })

  it('becomes dead before a handler sees it when its id has a control character', async () => {
    const world = await newWorld()
    const outbox = world.outbox({ poller: { pollIntervalMs: 50, leaseMs: 300 }, retry: { maxAttempts: 3 } })
    const runs: string[] = []
    outbox.on('any.thing', 'note', (event) => void runs.push(event.eventId))
    const insert = `insert into ${world.table} (event_id, event_type, payload) values ($1, 'any.thing', '{}')`
    await world.pool.query(insert, ['a\u001eb'])
    await outbox.start()
    await until(async () => (await world.rows()).every((row) => row.status === 'DEAD'))
    expect(await world.rows()).toMatchObject([{ status: 'DEAD', attempts: 1 }])
    expect(runs).toEqual([])
  })

  it.each([
    ['headers', '"text"'],
    ['headers', '7'],
    ['headers', '[1, 2]'],
    ['metadata', '"text"'],
    ['metadata', '{"correlationId": {"a": 1}}'],
    ['handled_by', '"text"'],
    ['handled_by', '{"a": 1}'],
  ])('is handled or DEAD when its %s is %s, and its neighbours are handled', async (column, value) => {
    const world = await newWorld()
    const outbox = world.outbox({ poller: { pollIntervalMs: 50, leaseMs: 500 }, retry: { maxAttempts: 2 } })
    outbox.on('any.thing', 'publish on', () => outbox.enqueue({ type: 'next.thing' }))
    outbox.on('next.thing', 'note', () => {})
    const insert = `insert into ${world.table} (event_id, event_type, payload, ${column}) values ($1, 'any.thing', '{}', $2)`
    await world.pool.query(insert, ['odd', value])
    await world.pool.query(insert, ['plain', null])
    await outbox.start()
    await until(
      async () => (await world.rows()).every((row) => row.status === 'DONE' || row.status === 'DEAD'),
      { timeoutMs: 5_000 },
    )
    expect((await world.rows()).find((row) => row.id === 'plain')).toMatchObject({
      status: 'DONE',
      attempts: 0,
    })
  })
})
