import { EventEnvelope } from '../core/envelope.js'
import { InvalidSettingError } from '../core/errors.js'
import { isMetadata, redacted } from '../core/metadata.js'
import { readSettings } from '../core/settings.js'
import { escapeUnprintable, sanitizeText } from '../core/text.js'
import { describeError, ignoreRejection, isA } from '../core/unknown.js'

export type LogFields = Readonly<Record<string, unknown>>
export type LogLevel = 'debug' | 'info' | 'warn' | 'error'

/** The logger port. A pino instance fits as it is. */
export interface Logger {
  debug(fields: LogFields, message: string): void
  info(fields: LogFields, message: string): void
  warn(fields: LogFields, message: string): void
  error(fields: LogFields, message: string): void
  /** Lets the outbox skip building lines that nobody wants. */
  isLevelEnabled?(level: LogLevel): boolean
}

const ORDER: Record<LogLevel, number> = { debug: 10, info: 20, warn: 30, error: 40 }

export interface JsonLoggerOptions {
  readonly level?: LogLevel
  /** Where a finished line goes; default standard output. */
  readonly write?: (line: string) => void
}

/** Loggers that escape by themselves what terminals obey, in a way that reads back as it was. */
const escaping = new WeakSet<Logger>()

/** One JSON object a line: time, level, msg and the fields. Never throws. */
export function jsonLogger(given: JsonLoggerOptions = {}): Logger {
  const options = readSettings('jsonLogger()', given, ['level', 'write'])
  const { level: lowest = 'info' } = options
  if (!Object.hasOwn(ORDER, lowest)) {
    throw new InvalidSettingError('level', `must be one of: ${Object.keys(ORDER).join(', ')}`)
  }
  const least = ORDER[lowest]
  const write = options.write ?? toStandardOutput
  const at = (level: LogLevel) => (fields: LogFields, message: string) => {
    if (ORDER[level] < least) return
    let line: string
    try {
      line = JSON.stringify({ time: new Date().toISOString(), level, msg: message, ...fields })
    } catch {
      line = JSON.stringify({ time: new Date().toISOString(), level, msg: message })
    }
    write(`${escapeUnprintable(line)}\n`)
  }
  const logger: Logger = {
    debug: at('debug'),
    info: at('info'),
    warn: at('warn'),
    error: at('error'),
    isLevelEnabled: (level) => ORDER[level] >= least,
  }
  escaping.add(logger)
  return logger
}

const MOST_WAITING = 65_536
let waiting = ''
let flushesAtExit = false

/** Lines of one turn are written together, right behind it, or when the process exits: a write costs more than a line. */
function toStandardOutput(line: string): void {
  if (!flushesAtExit) process.once('exit', flush)
  flushesAtExit = true
  if (waiting === '') process.nextTick(flush)
  waiting += line
  if (waiting.length > MOST_WAITING) flush()
}

function flush(): void {
  const lines = waiting
  waiting = ''
  if (lines !== '') process.stdout.write(lines)
}

const nothing = () => {}
export const silentLogger: Logger = {
  debug: nothing,
  info: nothing,
  warn: nothing,
  error: nothing,
  isLevelEnabled: () => false,
}

export function logs(logger: Logger, level: LogLevel): boolean {
  return logger.isLevelEnabled ? logger.isLevelEnabled(level) : true
}

/** A logger that adds fields to every line. */
export function withFields(logger: Logger, fields: LogFields): Logger {
  const at = (level: LogLevel) => (more: LogFields, message: string) => {
    if (typeof more === 'string') logger[level](fields, more)
    else logger[level]({ ...fields, ...fieldsOf(more) }, message)
  }
  const adding: Logger = {
    debug: at('debug'),
    info: at('info'),
    warn: at('warn'),
    error: at('error'),
    isLevelEnabled: (level) => logs(logger, level),
  }
  if (escaping.has(logger)) escaping.add(adding)
  return adding
}

/** Without types people log texts, errors and events, as they do with pino: spread, those would be garbage or say too much. */
function fieldsOf(given: LogFields): LogFields {
  if (isA(given, EventEnvelope)) return { event: given }
  if (isA(given, Error)) return errorFields(given)
  try {
    return { ...(given as LogFields) }
  } catch {
    // A field that throws when it is read must not fail the handler that logs it.
    return { fields: '[unreadable]' }
  }
}

export type Redact = (message: string) => string

/** A thrown value as log fields: its name and at most 500 characters of message, after the user's `redact`. */
export function errorFields(thrown: unknown, redact?: Redact): LogFields {
  const { name, message } = describeError(thrown)
  return { error: escapeUnprintable(name), error_message: loggable(message, redact) }
}

/** A message as a log may hold it. Not every logger escapes what JSON leaves alone and terminals obey. */
export function loggable(message: string, redact?: Redact): string {
  return sanitizeText(escapeUnprintable(redact ? safely(redact, message) : message), 500)
}

function safely(redact: Redact, message: string): string {
  try {
    const text: unknown = redact(message)
    if (typeof text === 'string') return text
    ignoreRejection(text)
    return '[redact gave no text]'
  } catch {
    return '[redact threw]'
  }
}

/**
 * A logger that cannot throw: what the outbox does must not depend on it. A handler that logs its event logs the ids of it,
 * not the payload, and no user id: JSON would hold everything. Rows can hold codes that terminals obey and JSON leaves alone.
 */
export function unfailing(logger: Logger): Logger {
  const textOf = escaping.has(logger) ? (text: string) => text : escapeUnprintable
  const at = (level: LogLevel) => (fields: LogFields, message: string) => {
    try {
      // The types allow an asynchronous logger.
      ignoreRejection(logger[level](presentable(fields, DEEPEST, textOf) as LogFields, message))
    } catch {}
  }
  return {
    debug: at('debug'),
    info: at('info'),
    warn: at('warn'),
    error: at('error'),
    isLevelEnabled: (level) => {
      try {
        const answer: unknown = logs(logger, level)
        ignoreRejection(answer)
        return Boolean(answer)
      } catch {
        return true
      }
    },
  }
}

const DEEPEST = 4

/** The same value when there is nothing in it to hide or to escape. */
function presentable(value: unknown, depth: number, textOf: (text: string) => string): unknown {
  if (typeof value === 'string') return textOf(value)
  if (typeof value !== 'object' || value === null) return value
  try {
    return presentableObject(value, depth, textOf)
  } catch {
    // A getter that throws must not cost the whole line.
    return '[unreadable]'
  }
}

function presentableObject(value: object, depth: number, textOf: (text: string) => string): unknown {
  if (value instanceof EventEnvelope) return presentable(idsOf(value), 1, textOf)
  if (isMetadata(value)) return presentable(redacted(value), 1, textOf)
  if (depth === 0) return value
  if (Array.isArray(value)) {
    const items = value.map((item) => presentable(item, depth - 1, textOf))
    return changed(value, items)
  }
  const prototype: unknown = Object.getPrototypeOf(value)
  if (prototype !== Object.prototype && prototype !== null) return value
  let copy: Record<string, unknown> | undefined
  for (const [name, field] of Object.entries(value)) {
    const shown = presentable(field, depth - 1, textOf)
    if (shown === field) continue
    copy ??= { ...value }
    copy[name] = shown
  }
  return copy ?? value
}

function changed(list: readonly unknown[], shown: readonly unknown[]): readonly unknown[] {
  return shown.some((item, at) => item !== list[at]) ? shown : list
}

function idsOf({ eventId, eventType, aggregateType, aggregateId, metadata }: EventEnvelope) {
  return { eventId, eventType, aggregateType, aggregateId, correlationId: metadata.correlationId }
}
