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

interface Variable {
  readonly group: keyof EnvironmentOptions
  readonly setting: string
  /** Whole numbers, times this; none for words. */
  readonly unit?: number
}

const DAY_MS = 24 * 3_600_000

const number = (group: Variable['group'], setting: string, unit = 1): Variable => ({ group, setting, unit })
const word = (group: Variable['group'], setting: string): Variable => ({ group, setting })

/** Every variable, in the order of the documentation. */
export const ENVIRONMENT: Readonly<Record<string, Variable>> = {
  OUTBOX_CONCURRENCY: number('dispatcher', 'concurrency'),
  OUTBOX_HOT_QUEUE_SIZE: number('dispatcher', 'hotQueueSize'),
  OUTBOX_COLD_QUEUE_SIZE: number('dispatcher', 'coldQueueSize'),
  OUTBOX_QUEUE_BYTES: number('dispatcher', 'queueBytes'),
  OUTBOX_DRAIN_TIMEOUT_MS: number('dispatcher', 'drainTimeoutMs'),
  OUTBOX_STUCK_AFTER_MS: number('dispatcher', 'stuckAfterMs'),
  OUTBOX_ON_UNROUTABLE: word('dispatcher', 'onUnroutable'),
  OUTBOX_UNROUTABLE_GRACE_MS: number('dispatcher', 'unroutableGraceMs'),
  OUTBOX_POLL_INTERVAL_MS: number('poller', 'pollIntervalMs'),
  OUTBOX_BATCH_SIZE: number('poller', 'batchSize'),
  OUTBOX_LEASE_MS: number('poller', 'leaseMs'),
  OUTBOX_SKIP_RECENT_MS: number('poller', 'skipRecentMs'),
  OUTBOX_MAX_ATTEMPTS: number('retry', 'maxAttempts'),
  OUTBOX_ON_DEAD: word('ordering', 'onDead'),
  OUTBOX_RETENTION_DAYS: number('retention', 'doneMs', DAY_MS),
  OUTBOX_PROCESSED_RETENTION_DAYS: number('retention', 'processedMs', DAY_MS),
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
  for (const [name, { group, setting, unit }] of Object.entries(ENVIRONMENT)) {
    const text = env[name]?.trim()
    if (!text) continue
    const settings = options[group] ?? {}
    settings[setting] = unit === undefined ? text : numberOf(name, text) * unit
    options[group] = settings
  }
  return options
}

function numberOf(name: string, text: string): number {
  if (/^\d{1,15}$/.test(text)) return Number(text)
  throw new InvalidSettingError(name, 'must be a whole number, 0 or more')
}
