import { InvalidSettingError } from '../core/errors.js'
import { type JsonLoggerOptions, jsonLogger, type Logger, type LogLevel } from '../observe/logger.js'

const LEVELS: readonly string[] = ['debug', 'info', 'warn', 'error'] satisfies LogLevel[]

/** JSON lines from the level of OUTBOX_LOG_LEVEL on. */
export function loggerFromEnv(options: JsonLoggerOptions = {}): Logger {
  const level = levelFromEnv()
  return jsonLogger({ ...options, ...(level === undefined ? {} : { level }) })
}

export function levelFromEnv(
  env: Readonly<Record<string, string | undefined>> = process.env,
): LogLevel | undefined {
  const text = env.OUTBOX_LOG_LEVEL?.trim()
  if (!text) return undefined
  if (LEVELS.includes(text)) return text as LogLevel
  throw new InvalidSettingError('OUTBOX_LOG_LEVEL', `must be one of ${LEVELS.join(', ')}`)
}
