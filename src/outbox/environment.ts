import { InvalidSettingError } from '../core/errors.js'
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

export interface Variable {
  readonly group: keyof EnvironmentOptions
  readonly setting: string
  /** Whole numbers, from `least` on, times `unit`; or one of these words. */
  readonly takes: { readonly least: number; readonly unit: number } | readonly string[]
}

const DAY_MS = 24 * 3_600_000

function whole(group: Variable['group'], setting: string, least: number, unit = 1): Variable {
  return { group, setting, takes: { least, unit } }
}

function word(group: Variable['group'], setting: string, ...words: readonly string[]): Variable {
  return { group, setting, takes: words }
}

/** Every variable, in the order of the documentation. The limits are those of the settings. */
export const ENVIRONMENT: Readonly<Record<string, Variable>> = {
  OUTBOX_CONCURRENCY: whole('dispatcher', 'concurrency', 1),
  OUTBOX_HOT_QUEUE_SIZE: whole('dispatcher', 'hotQueueSize', 1),
  OUTBOX_COLD_QUEUE_SIZE: whole('dispatcher', 'coldQueueSize', 1),
  OUTBOX_QUEUE_BYTES: whole('dispatcher', 'queueBytes', 1),
  OUTBOX_DRAIN_TIMEOUT_MS: whole('dispatcher', 'drainTimeoutMs', 0),
  OUTBOX_STUCK_AFTER_MS: whole('dispatcher', 'stuckAfterMs', 1),
  OUTBOX_ON_UNROUTABLE: word('dispatcher', 'onUnroutable', 'dead', 'retry'),
  OUTBOX_UNROUTABLE_GRACE_MS: whole('dispatcher', 'unroutableGraceMs', 0),
  OUTBOX_POLL_INTERVAL_MS: whole('poller', 'pollIntervalMs', 1),
  OUTBOX_BATCH_SIZE: whole('poller', 'batchSize', 1),
  OUTBOX_LEASE_MS: whole('poller', 'leaseMs', 100),
  OUTBOX_SKIP_RECENT_MS: whole('poller', 'skipRecentMs', 0),
  OUTBOX_MAX_ATTEMPTS: whole('retry', 'maxAttempts', 1),
  OUTBOX_ON_DEAD: word('ordering', 'onDead', 'continue', 'halt'),
  OUTBOX_RETENTION_DAYS: whole('retention', 'doneMs', 0, DAY_MS),
  OUTBOX_PROCESSED_RETENTION_DAYS: whole('retention', 'processedMs', 1, DAY_MS),
}

/**
 * Settings from environment variables, to be spread into the options of an outbox. What is not set, or empty, is left to
 * the defaults; a value that makes no sense is an InvalidSettingError that names the variable.
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
    throw new InvalidSettingError(name, `must be ${takes.map((one) => `'${one}'`).join(' or ')}`)
  }
  const value = /^\d+$/.test(text) ? Number(text) : Number.NaN
  if (value >= takes.least && Number.isSafeInteger(value * takes.unit)) return value * takes.unit
  throw new InvalidSettingError(name, `must be a whole number, ${takes.least} or more`)
}
