import { InvalidSettingError } from '../core/errors.js'
import { durationSetting, integerSetting, MAX_DURATION_MS, parseInteger } from '../core/number-settings.js'
import type {
  DispatcherSettings,
  OrderingSettings,
  PollerSettings,
  RetentionSettings,
  RetrySettings,
} from './settings.js'

/** The part of the options of an outbox that can be set by environment variables. */
export interface EnvironmentOptions {
  readonly dispatcher?: DispatcherSettings
  readonly poller?: PollerSettings
  readonly retry?: RetrySettings
  readonly ordering?: OrderingSettings
  readonly retention?: RetentionSettings
}

type Environment = Readonly<Record<string, string | undefined>>

interface NumberRange {
  readonly least: number
  readonly unit: number
  readonly isDuration: boolean
}

export interface Variable {
  readonly group: keyof EnvironmentOptions
  readonly setting: string
  /** Range of a number, which is multiplied by `unit`, or the list of the valid words. */
  readonly takes: NumberRange | readonly string[]
}

const DAY_MS = 24 * 3_600_000

function integer(group: Variable['group'], setting: string, least: number): Variable {
  return { group, setting, takes: { least, unit: 1, isDuration: false } }
}

function milliseconds(group: Variable['group'], setting: string, least: number): Variable {
  return { group, setting, takes: { least, unit: 1, isDuration: true } }
}

function days(group: Variable['group'], setting: string, least: number): Variable {
  return { group, setting, takes: { least, unit: DAY_MS, isDuration: false } }
}

function word(group: Variable['group'], setting: string, ...words: readonly string[]): Variable {
  return { group, setting, takes: words }
}

/** Every variable, in the order of the documentation. The limits are those of the settings. */
export const ENVIRONMENT: Readonly<Record<string, Variable>> = {
  OUTBOX_CONCURRENCY: integer('dispatcher', 'concurrency', 1),
  OUTBOX_HOT_QUEUE_SIZE: integer('dispatcher', 'hotQueueSize', 1),
  OUTBOX_COLD_QUEUE_SIZE: integer('dispatcher', 'coldQueueSize', 1),
  OUTBOX_QUEUE_BYTES: integer('dispatcher', 'queueBytes', 1),
  OUTBOX_DRAIN_TIMEOUT_MS: milliseconds('dispatcher', 'drainTimeoutMs', 0),
  OUTBOX_STUCK_AFTER_MS: milliseconds('dispatcher', 'stuckAfterMs', 1),
  OUTBOX_ON_UNROUTABLE: word('dispatcher', 'onUnroutable', 'dead', 'retry'),
  OUTBOX_UNROUTABLE_GRACE_MS: milliseconds('dispatcher', 'unroutableGraceMs', 0),
  OUTBOX_POLL_INTERVAL_MS: milliseconds('poller', 'pollIntervalMs', 1),
  OUTBOX_BATCH_SIZE: integer('poller', 'batchSize', 1),
  OUTBOX_LEASE_MS: milliseconds('poller', 'leaseMs', 100),
  OUTBOX_SKIP_RECENT_MS: milliseconds('poller', 'skipRecentMs', 0),
  OUTBOX_MAX_ATTEMPTS: integer('retry', 'maxAttempts', 1),
  OUTBOX_ON_DEAD: word('ordering', 'onDead', 'continue', 'halt'),
  OUTBOX_RETENTION_DAYS: days('retention', 'doneMs', 0),
  OUTBOX_PROCESSED_RETENTION_DAYS: days('retention', 'processedMs', 1),
}

/**
 * Reads settings from environment variables. Spread the result into the options of an outbox. A variable that is not set, or
 * is empty, leaves the default. Throws InvalidSettingError with the name of the variable for an invalid value.
 *
 * @example
 * const outbox = createOutbox({ store: postgresStore(pool), ...optionsFromEnv() })
 */
export function optionsFromEnv(env: Environment = process.env): EnvironmentOptions {
  const options: Record<string, Record<string, unknown>> = {}
  for (const [name, { group, setting, takes }] of Object.entries(ENVIRONMENT)) {
    const text = env[name]?.trim()
    if (!text) continue
    options[group] = { ...options[group], [setting]: parsed(name, text, takes) }
  }
  return options
}

function parsed(name: string, text: string, takes: Variable['takes']): string | number {
  if (!('least' in takes)) {
    if (takes.includes(text)) return text
    throw new InvalidSettingError(name, `must be ${takes.map((word) => `'${word}'`).join(' or ')}`)
  }
  const value = parseInteger(text)
  const { least: min, unit, isDuration } = takes
  if (isDuration) return durationSetting(name, value, { min })
  if (unit === 1) return integerSetting(name, value, { min })
  return integerSetting(name, value, { min, max: MAX_DURATION_MS / unit }) * unit
}
