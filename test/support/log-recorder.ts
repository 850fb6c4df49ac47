import { jsonLogger, type Logger, type LogLevel } from '../../src/observe/logger.js'

export interface LogLine {
  readonly level: LogLevel
  readonly msg: string
  readonly [field: string]: unknown
}

export interface LogRecorder {
  readonly logger: Logger
  /** The lines as the default logger would print them. */
  readonly raw: string[]
  lines(level?: LogLevel): LogLine[]
  /** Lines whose message matches. */
  matching(pattern: RegExp): LogLine[]
}

/** The default JSON logger at its most talkative, writing into memory. */
export function recordLog(): LogRecorder {
  const raw: string[] = []
  const parsed = () => raw.map((line) => JSON.parse(line) as LogLine)
  return {
    raw,
    logger: jsonLogger({ level: 'debug', write: (line) => raw.push(line) }),
    lines: (level) => parsed().filter((line) => level === undefined || line.level === level),
    matching: (pattern) => parsed().filter((line) => pattern.test(line.msg)),
  }
}
