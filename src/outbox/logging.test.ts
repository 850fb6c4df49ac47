import { format } from 'node:util'
import pino from 'pino'
import { afterEach, describe, expect, it, vi } from 'vitest'
import { world } from '../../test/support/runtime-world.js'
import { type Logger, silentLogger } from '../observe/logger.js'

const EVENT = {
  type: 'card.charged',
  eventId: 'e-1',
  payload: { card: '4111111111111111' },
  headers: { authorization: '4711' },
  metadata: { userId: '0815', correlationId: 'c-1' },
}

/** One event that a handler takes, and one that kills it; both in a transaction, and one that is rolled back. */
async function live(logger: Logger): Promise<void> {
  const { outbox } = world({ logger, retry: { maxAttempts: 1 } })
  outbox.on('card.charged', 'bank', (_event, { log }) => log.debug({}, 'charging'))
  outbox.on('card.refused', 'bank', () => {
    throw new Error('no\u001b[31m\u009b31m')
  })
  await outbox.transaction((tx) => tx.publishAll([EVENT, { ...EVENT, type: 'card.refused', eventId: 'e-2' }]))
  const rolledBack = outbox.transaction(async (tx) => {
    await tx.publish({ ...EVENT, eventId: 'e-3' })
    throw new Error('rolled back')
  })
  await expect(rolledBack).rejects.toThrow('rolled back')
  await outbox.drain()
}

function pinoInto(lines: Record<string, unknown>[], options: pino.LoggerOptions = {}): pino.Logger {
  return pino(options, { write: (line: string) => void lines.push(JSON.parse(line)) })
}

describe('the lines of a life', () => {
  it('are one for a publish and one for a call, with all fields, and one for a death; by pino as it is', async () => {
    const lines: Record<string, unknown>[] = []
    await live(pinoInto(lines, { level: 'info', base: null, timestamp: false }))
    const event = { event_id: 'e-1', event_type: 'card.charged', correlation_id: 'c-1' }
    const other = { event_id: 'e-2', event_type: 'card.refused', correlation_id: 'c-1' }
    const call = { handler: 'bank', attempt: 1, duration_ms: expect.any(Number) }
    const failed = { error: 'Error', error_message: 'no\\u001b[31m\\u009b31m', outcome: 'failed' }
    const byMessage = (message: string) => lines.filter(({ msg }) => msg === message)
    expect(byMessage('event published')).toEqual([
      { level: 30, msg: 'event published', ...event },
      { level: 30, msg: 'event published', ...other },
    ])
    expect(byMessage('event handled')).toEqual([
      { level: 30, msg: 'event handled', ...event, ...call, outcome: 'done' },
    ])
    expect(byMessage('handler failed')).toEqual([
      { level: 40, msg: 'handler failed', ...other, ...call, ...failed },
    ])
    expect(byMessage('event is dead')).toEqual([
      {
        ...{ level: 50, msg: 'event is dead', ...other, attempt: 1, outcome: 'dead' },
        error_message: 'bank: Error: no\\u001b[31m\\u009b31m',
      },
    ])
    expect(lines).toHaveLength(5)
  })

  it('go through a child of pino, with its bindings and its own level', async () => {
    const lines: Record<string, unknown>[] = []
    await live(pinoInto(lines, { level: 'warn' }).child({ service: 'shop' }, { level: 'debug' }))
    expect(lines.every(({ service }) => service === 'shop')).toBe(true)
    expect(lines.map(({ msg }) => msg)).toContain('charging')
  })

  it('are not even built below the level of the logger, whenever that is set', async () => {
    const lines: Record<string, unknown>[] = []
    const logger = pinoInto(lines, { level: 'silent' })
    const info = vi.spyOn(logger, 'info')
    await live(logger)
    expect(lines).toEqual([])
    expect(info).not.toHaveBeenCalled()
    logger.level = 'error'
    await live(logger)
    expect(lines.map(({ msg }) => msg)).toEqual(['event is dead'])
  })

  it('are refused a logger that has not all four levels', () => {
    const { debug: _, ...lacking } = silentLogger
    expect(() => world({ logger: lacking as Logger })).toThrow(/logger: must have a debug\(\) function/)
    const own = pino({ customLevels: { loud: 35 }, useOnlyCustomLevels: true, level: 'loud' })
    expect(() => world({ logger: own as unknown as Logger })).toThrow(/logger: must have/)
  })
})

describe('console as a logger', () => {
  afterEach(() => vi.restoreAllMocks())

  it('works: it prints fields and message, control characters escaped, nothing of the event', async () => {
    const printed: string[] = []
    for (const method of ['debug', 'info', 'warn', 'error'] as const) {
      vi.spyOn(console, method).mockImplementation((...args) => void printed.push(format(...args)))
    }
    await live(console)
    const text = printed.join('\n')
    expect(printed).toHaveLength(6)
    expect(text).toContain("event_id: 'e-1'")
    expect(text).toContain('event handled')
    expect(text).toContain('charging')
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for.
    expect(text).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f]/)
    expect(text).not.toMatch(/4111|4711|0815/)
  })
})
