import { InvalidSettingError } from '../core/errors.js'
import { isEventLike } from '../core/event-like.js'
import { isError, LOGGED, type Redact, redactError, redactFields } from '../core/redact.js'
import { readSettings } from '../core/settings.js'
import { escapeUnprintable } from '../core/text.js'
import { describeError, ignoreRejection, read } from '../core/unknown.js'

export type { Redact }
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

/** Logger without the fields, by each result of `withFields`. */
const unbound = new WeakMap<Logger, Logger>()

/** Returns the logger that was given to `withFields`, or the same logger if it adds no fields. */
export function withoutFields(logger: Logger): Logger {
  return unbound.get(logger) ?? logger
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
  unbound.set(adding, logger)
  return adding
}

/**
 * Returns the fields of a line. Without types, applications log errors, events and other values, as they do with pino. These
 * have a field of their own, because their properties would lose their meaning or show a payload.
 */
function fieldsOf(given: unknown): LogFields {
  try {
    if (isError(given)) return errorFields(given)
    if (isEventLike(given)) return { event: given }
    const logged = read(given, LOGGED)
    return { ...((typeof logged === 'function' ? logged.call(given) : given) as LogFields) }
  } catch {
    return { fields: '[unreadable]' }
  }
}

/** Returns the name and message of a thrown value as log fields. The logger of an outbox redacts and cuts them. */
export function errorFields(thrown: unknown): LogFields {
  const { name, message } = describeError(thrown)
  return { error: name, error_message: message }
}

/**
 * Returns the message of a line as text. Without types, applications pass events, errors and other values as the message, and
 * loggers print the whole value. Such a value is redacted like a field. Returns `undefined` for a missing message.
 */
function textOf(message: unknown, redact: Redact | undefined): string | undefined {
  if (message === undefined || typeof message === 'string') return message
  if (isError(message)) {
    const { name, message: text } = redactError(message, redact)
    return `${name}: ${text}`
  }
  const { value } = redactFields({ value: message }, { redact, escapes: false })
  if (typeof value !== 'object' || value === null)
    return typeof value === 'function' ? '[function]' : String(value)
  try {
    return JSON.stringify(value)
  } catch {
    return '[unreadable]'
  }
}

/**
 * A logger that cannot throw, because the work of the outbox must not depend on it, and that redacts every line. Values from
 * the database may hold characters that terminals obey and JSON does not escape, so they are escaped for other loggers than
 * `jsonLogger`.
 */
export function safeLogger(logger: Logger, redact: Redact | undefined): Logger {
  const escapes = !escaping.has(logger)
  const options = { redact, escapes }
  const at = (level: LogLevel) => (fields: LogFields, message: string) => {
    try {
      const text = textOf(message, redact)
      const shown = escapes && text !== undefined ? escapeUnprintable(text) : text
      // The types allow an asynchronous logger.
      ignoreRejection(logger[level](redactFields(fields, options), shown as string))
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
