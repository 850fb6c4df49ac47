import { describe, expect, it } from 'vitest'
import { defineEvent, type Logger } from '../../src/index.js'
import { event, migratedDatabase, outboxOn, poolOn, rowsIn } from '../support/trap-kit.js'
import { until } from '../support/waiting.js'

/** Errors of handlers may hold data; payloads never get into the log. */

const SECRET = 'hunter2-4242424242424242'
const retry = { maxAttempts: 2, policy: { delayMs: () => 1 } }

describe('the text of a handler error', () => {
  it('is cut at 500 characters in every line of the log', async () => {
    const { outbox, log } = outboxOn(poolOn(await migratedDatabase()), { retry })
    outbox.on('thing.happened', 'fail', () => {
      throw new Error('x'.repeat(100_000))
    })
    await outbox.start()
    await outbox.enqueue(event())
    await until('it is dead', () => log.matching(/event is dead/).length === 1)
    const failures = [...log.matching(/handler failed/), ...log.matching(/event is dead/)]
    expect(failures).toHaveLength(3)
    for (const line of failures) expect(String(line.error_message).length).toBeLessThanOrEqual(500)
    for (const raw of log.raw) expect(raw.length).toBeLessThan(1_500)
  })

  it('goes through the redact hook before it is cut', async () => {
    const { outbox, log } = outboxOn(poolOn(await migratedDatabase()), {
      retry,
      redact: (message) => message.replaceAll(SECRET, '[card]'),
    })
    outbox.on('thing.happened', 'fail', () => {
      throw new Error(`${'x'.repeat(490)}${SECRET}`)
    })
    await outbox.start()
    await outbox.enqueue(event())
    await until('it is dead', () => log.matching(/event is dead/).length === 1)
    expect(log.raw.join('')).not.toContain(SECRET.slice(0, 8))
    expect(log.matching(/handler failed/)[0]?.error_message).toMatch(/x\[card\]$/)
  })

  it.each<[string, (message: string) => string]>([
    [
      'throws',
      () => {
        throw new Error('broken hook')
      },
    ],
    ['answers with something else than text', () => undefined as unknown as string],
  ])('is not logged at all, and the event goes its way, when the redact hook %s', async (_how, redact) => {
    const pool = poolOn(await migratedDatabase())
    const { outbox, log } = outboxOn(pool, { retry, redact })
    outbox.on('thing.happened', 'fail', () => {
      throw new Error(SECRET)
    })
    await outbox.start()
    await outbox.enqueue(event())
    await until('it is dead', async () => (await rowsIn(pool))[0]?.status === 3)
    await until('it is announced', () => log.matching(/event is dead/).length === 1)
    const [row] = await rowsIn(pool)
    expect(row?.last_error).toBe(`fail: Error: ${SECRET}`)
    expect(log.raw.join('')).not.toContain(SECRET)
  })
})

describe('the whole log of a run', () => {
  it('holds nothing of payload, headers or user id, whatever goes wrong', async () => {
    const pool = poolOn(await migratedDatabase())
    const { outbox, log } = outboxOn(pool, {
      retry,
      dispatcher: { unroutableGraceMs: 0, hotQueueSize: 1, stuckAfterMs: 1 },
      poller: { leaseMs: 300, pollIntervalMs: 50 },
    })
    const Strict = defineEvent('strict', { upcast: () => JSON.parse(`{"oops": "${SECRET}"`), version: 2 })
    outbox.on('works', 'log', (_one, { log: own }) => own.info({}, 'from the handler'))
    outbox.on('fails', 'fail', () => {
      throw Object.assign(new Error('plain'), { detail: SECRET, payload: SECRET })
    })
    outbox.on('throws', 'throw text', () => {
      throw 'no error at all'
    })
    outbox.on(Strict, 'decode', () => {})
    await outbox.start()
    const secrets = (type: string) => ({
      type,
      payload: { card: SECRET, nested: [{ [SECRET]: SECRET }] },
      headers: { authorization: SECRET },
      metadata: { userId: SECRET, correlationId: 'c-1' },
    })
    const types = ['works', 'fails', 'throws', 'nobody.handles']
    for (const type of types) await outbox.enqueue(secrets(type))
    await outbox.transaction((tx) => tx.publishAll(types.map(secrets)))
    await pool.query(`insert into outbox_event (event_id, event_type, version, payload)
      values ('old', 'strict', 1, '{"card": "${SECRET}"}')`)
    await outbox.transaction((tx) => tx.publish({ ...secrets('works'), eventId: 'same' }))
    const twice = outbox.transaction((tx) => tx.publish({ ...secrets('works'), eventId: 'same' }))
    const errors = [await twice.catch(String)]
    const bad = { ...secrets('works'), payload: { [SECRET]: 1n } as unknown }
    errors.push(await outbox.enqueue(bad as never).catch(String))
    await until('everything is settled', async () => (await outbox.stats()).pending === 0, 15_000)
    await outbox.deadLetters.retry({ all: true })
    await until('and again', async () => (await outbox.stats()).pending === 0, 15_000)
    await outbox.deadLetters.discard({ all: true })
    const health = JSON.stringify(await outbox.health())
    await outbox.stop()
    expect(log.lines().length).toBeGreaterThan(20)
    expect(log.matching(/event is dead/).length).toBeGreaterThan(4)
    expect(log.matching(/from the handler/)[0]).toMatchObject({
      correlation_id: 'c-1',
      handler: 'log',
      attempt: 1,
    })
    expect(log.raw.filter((line) => line.includes(SECRET))).toEqual([])
    expect(health).not.toContain(SECRET)
    expect(errors[0]).not.toContain(SECRET)
  })
})

describe('a logger that throws', () => {
  it('does not turn a success into a failure', async () => {
    const pool = poolOn(await migratedDatabase())
    const broken = () => {
      throw new Error('disk full')
    }
    const logger: Logger = { debug: broken, info: broken, warn: broken, error: broken }
    const { outbox } = outboxOn(pool, { retry, logger })
    let runs = 0
    outbox.on('thing.happened', 'work', () => void runs++)
    await outbox.start()
    await outbox.enqueue(event())
    await until('it is settled', async () => [1, 3].includes((await rowsIn(pool))[0]?.status ?? 0))
    expect(await rowsIn(pool)).toMatchObject([{ status: 1, attempts: 0 }])
    expect(runs).toBe(1)
  })
})
