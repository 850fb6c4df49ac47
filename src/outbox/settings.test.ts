import { describe, expect, it } from 'vitest'
import { patient } from '../core/backoff.js'
import { InvalidSettingError } from '../core/errors.js'
import { memoryStore } from '../stores/memory/index.js'
import { HOSTILE_VALUES } from '../testing/hostile-values.js'
import type { Interceptor } from '../work/interceptors.js'
import { type OutboxOptions, settingsOf } from './settings.js'

const store = memoryStore()

/** The options as a program without types may give them. */
function settings(options: Record<string, unknown>) {
  return settingsOf({ store, ...options } as unknown as OutboxOptions<unknown>)
}

function refused(options: Record<string, unknown>, setting: string): void {
  let error: unknown
  try {
    settings(options)
  } catch (thrown) {
    error = thrown
  }
  expect(error).toBeInstanceOf(InvalidSettingError)
  expect(error).toMatchObject({ setting, message: expect.stringContaining(setting) })
}

/** Every number: its group, its name, its default, and the least that it may be. */
const NUMBERS = [
  ['dispatcher', 'concurrency', 4, 1],
  ['dispatcher', 'hotQueueSize', 1_000, 1],
  ['dispatcher', 'coldQueueSize', 1_000, 1],
  ['dispatcher', 'queueBytes', 67_108_864, 1],
  ['dispatcher', 'drainTimeoutMs', 5_000, 0],
  ['dispatcher', 'stuckAfterMs', 300_000, 1],
  ['dispatcher', 'unroutableGraceMs', 86_400_000, 0],
  ['poller', 'pollIntervalMs', 5_000, 1],
  ['poller', 'batchSize', 200, 1],
  ['poller', 'leaseMs', 30_000, 100],
  ['poller', 'skipRecentMs', 0, 0],
  ['retry', 'maxAttempts', 10, 1],
  ['retention', 'doneMs', 604_800_000, 0],
] as const

describe.each(NUMBERS)('setting %s.%s', (group, name, byDefault, least) => {
  const read = (made: ReturnType<typeof settingsOf>) => Reflect.get(made, name) as unknown

  it(`is ${byDefault} by default, and as it was given otherwise`, () => {
    expect(read(settings({}))).toBe(byDefault)
    expect(read(settings({ [group]: { [name]: undefined } }))).toBe(byDefault)
    expect(read(settings({ [group]: { [name]: least } }))).toBe(least)
    expect(read(settings({ [group]: { [name]: 123_456 } }))).toBe(123_456)
  })

  it.each([
    ['less than the least', least - 1],
    ['negative', -5],
    ['NaN', Number.NaN],
    ['infinite', Number.POSITIVE_INFINITY],
    ['a fraction', least + 0.5],
    ['text', '200'],
    ['a boolean', true],
    ['beyond what is exact', 2 ** 53],
    ['a bigint', 5n],
    ['an object', {}],
  ])('is refused by its name when it is %s', (_, value) => {
    refused({ [group]: { [name]: value } }, `${group}.${name}`)
  })
})

describe('settings', () => {
  it('need a store', () => {
    for (const options of [undefined, null, {}, 'postgres', { store: undefined }]) {
      expect(() => settingsOf(options as unknown as OutboxOptions<unknown>)).toThrow(InvalidSettingError)
    }
    refused({ store: null }, 'store')
  })

  it.each([
    [{ pollInterval: 5 }, 'pollInterval'],
    [{ concurrency: 5 }, 'concurrency'],
    [{ dispatcher: { concurency: 5 } }, 'dispatcher.concurency'],
    [{ poller: { leaseMS: 5 } }, 'poller.leaseMS'],
    [{ retry: { attempts: 5 } }, 'retry.attempts'],
    [{ retention: { done: 5 } }, 'retention.done'],
  ])('refuse a name that is none: %j', (options, setting) => {
    refused(options, setting)
  })

  it.each([
    [{ dispatcher: { onUnroutable: 'drop' } }, 'dispatcher.onUnroutable'],
    [{ retry: { policy: {} } }, 'retry.policy'],
    [{ retry: { policy: () => 5 } }, 'retry.policy'],
    [{ logger: {} }, 'logger'],
    [{ logger: { debug() {}, info() {}, warn() {} } }, 'logger'],
  ])('refuse %j', (options, setting) => {
    refused(options, setting)
  })

  it.each([
    [{ dispatcher: null }, 'dispatcher'],
    [{ poller: 5 }, 'poller'],
    [{ dispatcher: { interceptors: {} } }, 'dispatcher.interceptors'],
    [{ dispatcher: { createScope: {} } }, 'dispatcher.createScope'],
    [{ onDead: 'mail' }, 'onDead'],
    [{ redact: /secret/ }, 'redact'],
    [{ metrics: {} }, 'metrics'],
    [{ clock: {} }, 'clock'],
    [{ events: {} }, 'events'],
  ])('refuse %j by its name', (options, setting) => {
    refused(options, setting)
  })

  it.each<[string, unknown]>([
    ['null', null],
    ['undefined', undefined],
    ['a function', () => {}],
    ['a text', 'log'],
    ['an object without members', {}],
    ['an object with misspelled members', { beforeDispach: () => {} }],
    ['an object whose member is no function', { beforeDispatch: 'log' }],
    ['an object with one member that is no function', { beforeDispatch: () => {}, afterDispatch: null }],
    ...Object.entries(HOSTILE_VALUES).map(([name, make]): [string, unknown] => [name, make()]),
  ])('refuse %s as an interceptor, by its position', (_, interceptor) => {
    const interceptors = [{ afterDispatch: () => {} }, interceptor]
    refused({ dispatcher: { interceptors } }, 'dispatcher.interceptors[1]')
  })

  it('refuse a hole in the list of interceptors', () => {
    refused({ dispatcher: { interceptors: new Array(1) } }, 'dispatcher.interceptors[0]')
  })

  it('copy the list of interceptors', () => {
    const interceptors: Interceptor[] = [{ beforeDispatch: () => {} }]
    const copied = settings({ dispatcher: { interceptors } })
    interceptors.push(null as never)
    expect(copied.interceptors).toHaveLength(1)
  })

  it('take an instance of a class as an interceptor, whatever else it has', () => {
    class Timing {
      readonly started = new Map<string, number>()
      beforeDispatch() {}
    }
    expect(settings({ dispatcher: { interceptors: [new Timing()] } }).interceptors).toHaveLength(1)
  })

  it('take the attempts of the policy unless told otherwise', () => {
    expect(settings({ retry: { policy: patient() } }).maxAttempts).toBe(25)
    expect(settings({ retry: { policy: patient(), maxAttempts: 3 } }).maxAttempts).toBe(3)
    refused({ retry: { policy: { delayMs: () => 1, maxAttempts: 0 } } }, 'retry.maxAttempts')
  })

  it('back off exponentially from 200 ms to a minute by default', () => {
    const { retryPolicy } = settings({})
    for (let n = 0; n < 50; n++) {
      expect(retryPolicy.delayMs(1, null)).toBeGreaterThanOrEqual(100)
      expect(retryPolicy.delayMs(1, null)).toBeLessThanOrEqual(300)
      expect(retryPolicy.delayMs(50, null)).toBeGreaterThanOrEqual(30_000)
      expect(retryPolicy.delayMs(50, null)).toBeLessThanOrEqual(90_000)
    }
  })
})
