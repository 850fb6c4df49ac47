import { describe, expect, it } from 'vitest'
import {
  createOutbox,
  exponentialBackoff,
  fixedDelay,
  InvalidSettingError,
  linearBackoff,
  type OutboxOptions,
  silentLogger,
} from '../../src/index.js'
import { memoryStore } from '../../src/stores/memory/index.js'
import { postgresStore } from '../../src/stores/postgres/index.js'
import { poolOn } from '../support/trap-kit.js'

/** Every bad setting is refused before anything starts, by an error that names it. */

const make = (options: object) =>
  createOutbox({ store: memoryStore(), logger: silentLogger, ...options } as OutboxOptions<unknown>)

function refusal(work: () => unknown): InvalidSettingError {
  try {
    work()
  } catch (error) {
    expect(error).toBeInstanceOf(InvalidSettingError)
    return error as InvalidSettingError
  }
  throw new Error('it was accepted')
}

const NUMBERS: readonly (readonly [group: string, name: string, least: number])[] = [
  ['dispatcher', 'concurrency', 1],
  ['dispatcher', 'hotQueueSize', 1],
  ['dispatcher', 'coldQueueSize', 1],
  ['dispatcher', 'queueBytes', 1],
  ['dispatcher', 'drainTimeoutMs', 0],
  ['dispatcher', 'stuckAfterMs', 1],
  ['dispatcher', 'unroutableGraceMs', 0],
  ['poller', 'pollIntervalMs', 1],
  ['poller', 'batchSize', 1],
  ['poller', 'leaseMs', 100],
  ['poller', 'skipRecentMs', 0],
  ['retry', 'maxAttempts', 1],
  ['retention', 'doneMs', 0],
]

describe.each(NUMBERS)('%s.%s', (group, name, least) => {
  const bad = [
    -1,
    least - 1,
    Number.NaN,
    Number.POSITIVE_INFINITY,
    Number.NEGATIVE_INFINITY,
    least + 0.5,
    2 ** 60,
  ]
  const strange: unknown[] = ['5000', '', true, [], {}, 5n, () => 5]

  it.each([...bad, ...strange])('is refused as %s', (value) => {
    const error = refusal(() => make({ [group]: { [name]: value } }))
    expect(error.setting).toBe(`${group}.${name}`)
    expect(error.message).toContain(`${group}.${name}`)
  })

  it('is accepted at its least', () => {
    expect(() => make({ [group]: { [name]: least } })).not.toThrow()
  })
})

describe('a setting that does not exist', () => {
  it.each([
    [{ concurency: 4 }, 'concurency'],
    [{ dispatcher: { concurency: 4 } }, 'dispatcher.concurency'],
    [{ poller: { intervalMs: 4 } }, 'poller.intervalMs'],
    [{ retry: { attempts: 4 } }, 'retry.attempts'],
    [{ retention: { days: 4 } }, 'retention.days'],
  ])('is refused: %j', (options, setting) => {
    expect(refusal(() => make(options)).setting).toBe(setting)
  })

  it('is refused for a handler and for the store as well', () => {
    const outbox = make({})
    const options = { timeout: 5 } as object
    expect(refusal(() => outbox.on('x', 'h', () => {}, options)).setting).toContain('timeout')
    const pool = poolOn('postgres://nobody@127.0.0.1:1/none')
    expect(refusal(() => postgresStore(pool, { tabel: 'x' } as object)).setting).toContain('tabel')
  })
})

describe('a setting of the wrong kind', () => {
  it.each([
    ['store', undefined],
    ['store', {}],
    ['store', 'postgres://…'],
    ['dispatcher', null],
    ['dispatcher', 'fast'],
    ['poller', 5],
    ['retry', null],
    ['retention', []],
    ['logger', {}],
    ['logger', () => {}],
    ['metrics', {}],
    ['redact', 'password'],
    ['onDead', 'log'],
    ['clock', {}],
    ['events', 'order.placed'],
    ['events', [{}]],
  ])('%s is refused as %o', (setting, value) => {
    expect(refusal(() => make({ [setting]: value })).setting).toMatch(new RegExp(`^${setting}`))
  })

  it.each([
    ['interceptors', 5],
    ['createScope', {}],
    ['onUnroutable', 'ignore'],
  ])('dispatcher.%s is refused as %o', (name, value) => {
    expect(refusal(() => make({ dispatcher: { [name]: value } })).setting).toBe(`dispatcher.${name}`)
  })

  it.each([{}, 'exponential', { delayMs: 5 }])('retry.policy is refused as %o', (policy) => {
    expect(refusal(() => make({ retry: { policy } })).setting).toBe('retry.policy')
  })

  it('a pool is pointed out when it was passed in place of a store', () => {
    const pool = poolOn('postgres://nobody@127.0.0.1:1/none')
    expect(refusal(() => make({ store: pool })).message).toMatch(/postgresStore/)
  })

  it('anything that is no pool is refused by postgresStore', () => {
    for (const source of [{}, new Map(), { query: () => {} }]) refusal(() => postgresStore(source))
  })
})

describe('a handler', () => {
  it.each([-1, Number.NaN, Number.POSITIVE_INFINITY, '5'])('with a timeout of %s is refused', (timeoutMs) => {
    const options = { timeoutMs } as { timeoutMs: number }
    expect(refusal(() => make({}).on('x', 'h', () => {}, options)).setting).toContain('timeoutMs')
  })

  it.each(['', 'x'.repeat(256), 5, undefined])('named %o is refused', (name) => {
    expect(refusal(() => make({}).on('x', name as string, () => {})).setting).toContain('name')
  })

  it('that is no function, or for no event, is refused', () => {
    refusal(() => make({}).on('x', 'h', 'no function' as unknown as () => void))
    refusal(() => make({}).on('', 'h', () => {}))
    refusal(() => make({}).on(undefined as unknown as string, 'h', () => {}))
  })
})

describe('a backoff', () => {
  it.each([-1, Number.NaN, Number.POSITIVE_INFINITY, '5' as unknown as number])('of %s is refused', (ms) => {
    refusal(() => exponentialBackoff(ms, 60_000))
    refusal(() => exponentialBackoff(1, ms))
    refusal(() => linearBackoff(ms))
    refusal(() => fixedDelay(ms))
  })
})

describe('a delay', () => {
  it.each([-1, Number.NaN, Number.POSITIVE_INFINITY, 1e300, '5' as unknown as number])(
    'of %s is refused',
    async (ms) => {
      const outbox = make({})
      await outbox.migrate()
      const publishing = outbox.enqueue({ type: 'x', payload: 1 }, { delayMs: ms })
      await expect(publishing).rejects.toMatchObject({ name: 'InvalidSettingError', setting: 'delayMs' })
    },
  )

  it('and a date at once, or no date at all, are refused', async () => {
    const outbox = make({})
    await outbox.migrate()
    const one = { type: 'x', payload: 1 }
    const both = outbox.enqueue(one, { delayMs: 1, deliverAt: new Date() })
    await expect(both).rejects.toMatchObject({ setting: 'deliverAt' })
    const invalid = outbox.enqueue(one, { deliverAt: new Date('never') })
    await expect(invalid).rejects.toMatchObject({ setting: 'deliverAt' })
    const text = outbox.enqueue(one, { deliverAt: '2030-01-01' as unknown as Date })
    await expect(text).rejects.toMatchObject({ setting: 'deliverAt' })
  })
})
