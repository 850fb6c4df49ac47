import { spawnSync } from 'node:child_process'
import { runInNewContext } from 'node:vm'
import pino from 'pino'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { EventEnvelope } from '../core/envelope.js'
import {
  errorFields,
  jsonLogger,
  type LogFields,
  type Logger,
  logs,
  safeLogger,
  silentLogger,
  withFields,
} from './logger.js'

function capture(options: Omit<NonNullable<Parameters<typeof jsonLogger>[0]>, 'write'> = {}) {
  const lines: string[] = []
  return { lines, logger: jsonLogger({ ...options, write: (line) => void lines.push(line) }) }
}

describe('jsonLogger', () => {
  it('keeps one entry on one line, whatever the texts hold', () => {
    const { lines, logger } = capture()
    const nasty = 'a\r\nb\u2028c\u2029d\u0000e\u001b[31mred\u001b[0m\u007f\u009b31m\u0085'
    logger.info({ event_type: nasty, [nasty]: 1 }, nasty)
    expect(lines).toHaveLength(1)
    expect(lines[0]).toMatch(/^[\u0020-\u007e]+\n$/)
    expect(JSON.parse(lines[0] ?? '')).toMatchObject({
      level: 'info',
      msg: nasty,
      event_type: nasty,
      [nasty]: 1,
    })
  })

  it('keeps text of other scripts as it is', () => {
    const { lines, logger } = capture()
    logger.info({ name: 'Grüße 日本語 😀' }, 'hello')
    expect(lines[0]).toContain('Grüße 日本語 😀')
  })

  const circular: Record<string, unknown> = {}
  circular.self = circular
  it.each([
    ['circular', circular],
    ['a bigint', { amount: 1n }],
    [
      'a getter that throws',
      Object.defineProperty({}, 'x', {
        enumerable: true,
        get: () => {
          throw new Error('no')
        },
      }),
    ],
    [
      'a toJSON that throws',
      {
        toJSON: () => {
          throw new Error('no')
        },
      },
    ],
  ])('writes the line without its fields when they cannot be written: %s', (_title, value) => {
    const { lines, logger } = capture()
    logger.error({ value }, 'still said')
    expect(JSON.parse(lines[0] ?? '')).toEqual({
      time: expect.any(String),
      level: 'error',
      msg: 'still said',
    })
  })

  it('writes nothing below its level, and says so', () => {
    const { lines, logger } = capture({ level: 'warn' })
    logger.debug({}, 'debug')
    logger.info({}, 'info')
    logger.warn({}, 'warn')
    logger.error({}, 'error')
    expect(lines.map((line) => JSON.parse(line).level)).toEqual(['warn', 'error'])
    expect([logs(logger, 'info'), logs(logger, 'warn')]).toEqual([false, true])
  })

  it('says info and above by default, with a time', () => {
    const { lines, logger } = capture()
    logger.debug({}, 'debug')
    logger.info({ event_id: 'e-1' }, 'info')
    expect(lines).toHaveLength(1)
    const { time, ...rest } = JSON.parse(lines[0] ?? '')
    expect(rest).toEqual({ level: 'info', msg: 'info', event_id: 'e-1' })
    expect(new Date(time).toISOString()).toBe(time)
  })
})

describe('the logger port', () => {
  it('fits a pino instance as it is', () => {
    const lines: string[] = []
    const logger: Logger = pino({ level: 'info' }, { write: (line: string) => void lines.push(line) })
    withFields(logger, { event_id: 'e-1' }).warn({ attempt: 2 }, 'handler failed')
    logger.debug({}, 'not wanted')
    expect(lines).toHaveLength(1)
    expect(JSON.parse(lines[0] ?? '')).toMatchObject({
      event_id: 'e-1',
      attempt: 2,
      msg: 'handler failed',
      level: 40,
    })
    expect([logs(logger, 'debug'), logs(logger, 'error')]).toEqual([false, true])
  })

  it('fits one that knows no levels: everything is wanted', () => {
    const { isLevelEnabled: _, ...plain } = silentLogger
    expect(logs(plain, 'debug')).toBe(true)
    expect(logs(silentLogger, 'error')).toBe(false)
  })
})

describe('a logger that is given to an outbox', () => {
  const event = EventEnvelope.create({
    eventType: 'card.charged',
    payload: { card: '4111' },
    headers: { authorization: '4711' },
    metadata: { userId: '0815', correlationId: 'c-1' },
  })

  it('gets the ids of an event among the fields, wherever it stands, and never its data', () => {
    const lines: string[] = []
    const logger = safeLogger(pino({}, { write: (line: string) => void lines.push(line) }), undefined)
    const fields = { event, metadata: event.metadata, deep: { list: [1, event], other: { event } } }
    logger.info(fields, 'an event')
    expect(lines.join()).not.toMatch(/4111|4711|0815/)
    const ids = { eventId: event.eventId, eventType: 'card.charged', correlationId: 'c-1' }
    expect(JSON.parse(lines[0] ?? '')).toMatchObject({
      event: ids,
      metadata: { userId: '[redacted]', correlationId: 'c-1' },
      deep: { list: [1, ids], other: { event: ids } },
    })
    expect(fields.deep.list[1]).toBe(event)
  })

  it('gets everything else as it is, without a copy', () => {
    const seen: LogFields[] = []
    const note = (fields: LogFields) => void seen.push(fields)
    const logger = safeLogger({ debug: note, info: note, warn: note, error: note }, undefined)
    class Money {
      constructor(readonly cents: number) {}
    }
    const fields = {
      when: new Date(),
      list: [1, { a: 2 }],
      map: new Map([[1, { a: 2 }]]),
      money: new Money(1),
    }
    for (const level of ['debug', 'info', 'warn', 'error'] as const) logger[level](fields, 'x')
    expect(seen.map((entry) => entry === fields)).toEqual([true, true, true, true])
  })

  it('may throw, also when it is asked for its level or its fields are hostile', () => {
    const broken = () => {
      throw new Error('disk full')
    }
    const throwing = { debug: broken, info: broken, warn: broken, error: broken, isLevelEnabled: broken }
    const logger = safeLogger(throwing, undefined)
    const hostile = Object.defineProperty({}, 'x', { enumerable: true, get: broken })
    expect(() => logger.error(hostile as LogFields, 'x')).not.toThrow()
    expect(logs(logger, 'debug')).toBe(true)
  })
})

describe('withFields', () => {
  it('adds its fields to every line; what the line says itself goes first', () => {
    const { lines, logger } = capture()
    const bound = withFields(withFields(logger, { event_id: 'e-1', handler: 'outer' }), { handler: 'inner' })
    bound.info({ attempt: 1 }, 'handled')
    bound.error({ event_id: 'e-2' }, 'failed')
    expect(lines.map((line) => JSON.parse(line))).toMatchObject([
      { event_id: 'e-1', handler: 'inner', attempt: 1, level: 'info' },
      { event_id: 'e-2', handler: 'inner', level: 'error' },
    ])
  })

  it('knows the levels of the logger it wraps', () => {
    const { logger } = capture({ level: 'error' })
    expect(logs(withFields(logger, {}), 'warn')).toBe(false)
  })
})

function revoked(): object {
  const { proxy, revoke } = Proxy.revocable({}, {})
  revoke()
  return proxy
}

describe('what people log without looking at the types', () => {
  const event = EventEnvelope.create({
    eventType: 'order.placed',
    payload: { card: 'SECRET' },
    headers: { token: 'SECRET' },
    metadata: { userId: 'SECRET' },
  })
  const logged = (log: (logger: Logger) => void) => {
    const lines: string[] = []
    const root = pino({ base: null, timestamp: false }, { write: (line: string) => void lines.push(line) })
    log(withFields(safeLogger(root, undefined), { event_id: 'e-1' }))
    expect(lines).toHaveLength(1)
    expect(lines[0]).not.toContain('SECRET')
    return JSON.parse(lines[0] ?? '') as Record<string, unknown>
  }

  it('an event in the place of the fields', () => {
    const line = logged((log) => log.info(event as never, 'got'))
    expect(line).toMatchObject({ event_id: 'e-1', event: { eventId: event.eventId }, msg: 'got' })
  })

  it('an event at the very end of what is looked at', () => {
    const line = logged((log) => log.info({ a: { b: { c: { event } } } }, 'got'))
    expect(line).toMatchObject({ a: { b: { c: { event: { eventType: 'order.placed' } } } } })
  })

  it('an error in the place of the fields', () => {
    const error = Object.assign(new TypeError('bad'), { detail: 'SECRET' })
    const line = logged((log) => log.error(error as never, 'failed'))
    expect(line).toMatchObject({ event_id: 'e-1', error: 'TypeError', error_message: 'bad', msg: 'failed' })
  })

  it('nothing but a text', () => {
    const line = logged((log) => log.info('hello' as never, undefined as never))
    expect(line).toEqual({ level: 30, event_id: 'e-1', msg: 'hello' })
  })

  it.each<[string, unknown, unknown]>([
    ['an event', event, expect.stringContaining('"eventType":"order.placed"')],
    ['an object with an event', { event }, expect.stringContaining('"eventType":"order.placed"')],
    ['an array', [1, { event }], expect.stringContaining('[1,{"event":{')],
    ['an error', Object.assign(new TypeError('bad'), { card: 'SECRET' }), 'TypeError: bad'],
    ['an error of another realm', runInNewContext("new RangeError('bad')"), 'RangeError: bad'],
    ['a number', 7, '7'],
    ['a bigint', 7n, '7'],
    ['null', null, 'null'],
    ['a function', Object.assign(() => {}, { toJSON: () => event }), '[function]'],
    ['an object with a bigint', { total: 1n }, '[unreadable]'],
    ['a revoked proxy', revoked(), '[unreadable]'],
  ])('writes a message that is no text as redacted text: %s', (_title, message, shown) => {
    expect(logged((log) => log.info({ step: 1 }, message as never))).toMatchObject({ step: 1, msg: shown })
  })

  it('writes an error in the place of the message after redact', () => {
    const { lines, logger } = capture()
    const redact = (text: string) => text.replace(/\d+/g, '#')
    withFields(safeLogger(logger, redact), {}).error({}, new Error('card 4111') as never)
    expect(JSON.parse(lines[0] ?? '').msg).toBe('Error: card #')
  })

  it('treats an error of another realm in the place of the fields as an error', () => {
    const error = runInNewContext("Object.assign(new TypeError('bad'), { detail: 'SECRET' })")
    const line = logged((log) => log.error(error, 'failed'))
    expect(line).toEqual({
      level: 50,
      event_id: 'e-1',
      error: 'TypeError',
      error_message: 'bad',
      msg: 'failed',
    })
  })

  it('an object that throws when it is looked at', () => {
    const trap = Object.defineProperty({}, 'bad', {
      enumerable: true,
      get: () => {
        throw new Error('no')
      },
    })
    expect(logged((log) => log.info({ trap }, 'got'))).toMatchObject({
      event_id: 'e-1',
      trap: '[unreadable]',
    })
  })

  it('and a logger that is async and fails is no unhandled rejection', async () => {
    const failing = async () => {
      throw new Error('the disk is full')
    }
    const logger = safeLogger({ debug: failing, info: failing, warn: failing, error: failing }, undefined)
    logger.info({}, 'got')
    await new Promise((resolve) => setImmediate(resolve))
  })
})

it('escapes what pino leaves alone and terminals obey, wherever a row or an error can put it', () => {
  const lines: string[] = []
  const logger = safeLogger(pino({}, { write: (line: string) => void lines.push(line) }), undefined)
  const hostile = 'x\u009b31m\u007f\u2028'
  const thrown = Object.assign(new Error(hostile), { name: hostile })
  logger.warn({ event_type: hostile, list: [{ hostile }], ...errorFields(thrown) }, 'got')
  expect(lines[0]).toMatch(/^[ -~]+\n$/)
  expect(JSON.parse(lines[0] ?? '')).toMatchObject({ event_type: 'x\\u009b31m\\u007f\\u2028' })
})

it('leaves to jsonLogger what that escapes, so that it reads back as it was', () => {
  const { lines, logger } = capture()
  safeLogger(withFields(logger, { by: 'me' }), undefined).info({ event_type: 'x\u009b31m' }, 'got')
  expect(lines[0]).toMatch(/^[ -~]+\n$/)
  expect(JSON.parse(lines[0] ?? '')).toMatchObject({ by: 'me', event_type: 'x\u009b31m' })
})

describe('the error of a line', () => {
  const logged = (thrown: unknown, redact?: (text: string) => string) => {
    const { lines, logger } = capture()
    safeLogger(logger, redact).error(errorFields(thrown), 'failed')
    const { error, error_message: message } = JSON.parse(lines[0] ?? '')
    return { error, message }
  }

  it.each([
    ['an error', new TypeError('bad'), { error: 'TypeError', message: 'bad' }],
    ['text', 'just text', { error: 'NonError', message: 'just text' }],
    ['undefined', undefined, { error: 'NonError', message: 'undefined' }],
    ['null', null, { error: 'NonError', message: 'null' }],
  ])('describes %s', (_title, thrown, fields) => {
    expect(logged(thrown)).toEqual(fields)
  })

  it('has a message of at most 500 characters without NUL', () => {
    const { message } = logged(new Error(`a\u0000b${'x'.repeat(10_000)}`))
    expect(message).toHaveLength(500)
    expect(message).not.toContain('\u0000')
  })

  it('passes through redact before it is cut', () => {
    const secret = `${'x'.repeat(495)} card 4111`
    const redact = (text: string) => text.replace(/card \d+/, '[card]')
    expect(logged(new Error(secret), redact).message).toBe(`${'x'.repeat(495)} [card`.slice(0, 500))
  })

  it('has a name that passes through redact', () => {
    const error = Object.assign(new Error('no'), { name: 'Card4111Error' })
    expect(logged(error, (text) => text.replace(/\d+/, '#'))).toEqual({ error: 'Card#Error', message: 'no' })
  })

  it('shows nothing when redact throws or returns no text', () => {
    const throwing = () => {
      throw new Error('in redact')
    }
    expect(logged(new Error('secret'), throwing)).toEqual({
      error: '[redact threw]',
      message: '[redact threw]',
    })
    expect(logged(new Error('secret'), (() => 1) as never).message).toBe('[redact gave no text]')
  })
})

describe('invisible and bidirectional characters', () => {
  const characters = [
    ...['\u061c', '\u200e', '\u200f', '\u202a', '\u202b', '\u202c', '\u202d', '\u202e'],
    ...['\u2066', '\u2067', '\u2068', '\u2069', '\u2028', '\u2029', '\u200b', '\u2060', '\ufeff', '\u00ad'],
    ...['\r', '\n', '\u001b[31m', '\u007f', '\u0085', '\u009b31m', '\u{e0041}'],
  ]
  const hostile = (around: string) => characters.map((character) => `${around}${character}`).join('')

  it('are escaped by the default logger in every place of a line, which reads back as it was', () => {
    const { lines, logger } = capture()
    const fields = { [hostile('name')]: hostile('value'), list: [hostile('item')], error: hostile('error') }
    safeLogger(logger, undefined).info(fields, hostile('message'))
    expect(lines[0]).toMatch(/^[ -~]+\n$/)
    expect(JSON.parse(lines[0] ?? '')).toMatchObject({ ...fields, msg: hostile('message') })
  })

  it('are escaped for pino and for a logger that writes plain text', () => {
    const lines: string[] = []
    const write = (line: string) => void lines.push(line.replace(/\n$/, ''))
    const plain = (fields: LogFields, message: string) =>
      write(`${message} ${Object.entries(fields).map(([name, value]) => `${name}=${value}`)}`)
    for (const logger of [pino({}, { write }), { debug: plain, info: plain, warn: plain, error: plain }]) {
      const fields = { [hostile('name')]: hostile('value'), list: [hostile('item')], error: hostile('error') }
      safeLogger(logger, undefined).info(fields, hostile('message'))
    }
    expect(lines).toHaveLength(2)
    for (const line of lines) expect(line).toMatch(/^[ -~]+$/)
  })

  it('leave text of other scripts alone', () => {
    const { lines, logger } = capture()
    safeLogger(logger, undefined).info({ name: 'Grüße 日本語 שלום مرحبا 😀' }, 'hello')
    expect(lines[0]).toContain('Grüße 日本語 שלום مرحبا 😀')
  })
})

describe('standard output', () => {
  const writes = () => {
    const spy = vi.spyOn(process.stdout, 'write').mockReturnValue(true)
    onTestFinished(() => spy.mockRestore())
    return () => spy.mock.calls.map(([text]) => String(text))
  }
  const numbers = (text: string) =>
    text
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line).n)

  it('gets the lines of one turn in one write, in order, and nothing twice', async () => {
    const written = writes()
    const [first, other] = [jsonLogger(), jsonLogger()]
    for (let n = 0; n < 100; n++) (n % 2 ? first : other).info({ n }, 'a line')
    expect(written()).toEqual([])
    await new Promise(setImmediate)
    first.info({ n: 100 }, 'another turn')
    await new Promise(setImmediate)
    await new Promise(setImmediate)
    expect(written().map(numbers)).toEqual([Array.from({ length: 100 }, (_, n) => n), [100]])
  })

  it('does not wait for the end of a turn that has a lot to say', () => {
    const written = writes()
    for (let n = 0; n < 2_000; n++) jsonLogger().info({ n }, 'x'.repeat(1_000))
    expect(written().length).toBeGreaterThan(20)
  })

  it.each([
    ['leaves at once', 'process.exit(3)', 3],
    ['dies of an error', "throw new Error('boom')", 1],
  ])('gets every line of a process that %s', (_how, end, code) => {
    const script = `import { jsonLogger } from 'aftercommit'
      for (let n = 0; n < 1_000; n++) jsonLogger().info({ n }, 'a line')
      ${end}`
    const { status, stdout } = spawnSync(process.execPath, ['--input-type=module', '-e', script], {
      encoding: 'utf8',
    })
    expect(status).toBe(code)
    expect(numbers(stdout)).toEqual(Array.from({ length: 1_000 }, (_, n) => n))
  })
})
