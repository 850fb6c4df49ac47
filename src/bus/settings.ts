import { exponentialBackoff, type RetryPolicy } from '../core/backoff.js'
import { type Clock, systemClock } from '../core/clock.js'
import type { EventDefinition } from '../core/define-event.js'
import { InvalidSettingError } from '../core/errors.js'
import { durationSetting, integerSetting } from '../core/number-settings.js'
import { readSettings, requireMethods } from '../core/settings.js'
import { isClean } from '../core/text.js'
import { jsonLogger, type Logger, type Redact, safeLogger } from '../observe/logger.js'
import { type Tracer, unfailingTracer } from '../observe/tracing.js'

/** What every bus on a broker takes. */
export interface BusOptions {
  /** Needed to subscribe. Consumers of one group share the messages; every group gets all of them. */
  readonly group?: string
  /** Definitions that validate and decode the events of their types; those that are subscribed to need not be here. */
  readonly events?: Iterable<EventDefinition>
  /** The CloudEvents `source` of what is published, a URI reference. Default 'aftercommit'. */
  readonly source?: string
  /** Messages that are handled at the same time. Default 16. */
  readonly concurrency?: number
  /** Failed tries before a message goes to the dead letters, and how long to wait between them. */
  readonly retry?: {
    /** Default 5. */
    readonly maxAttempts?: number
    /**
     * How often the broker may hand a message out before it counts as one that kills its consumers. A lost connection or
     * a stop counts for everything that a consumer held, so this is more. Default `maxAttempts` + 10.
     */
    readonly maxDeliveries?: number
    /** Default `exponentialBackoff(200, 10_000)`. */
    readonly policy?: RetryPolicy
  }
  /** So long the broker may take to confirm. Default 10,000. */
  readonly confirmTimeoutMs?: number
  /** How long a stop waits for handlers under way. Default 5,000. */
  readonly drainTimeoutMs?: number
  /** After so long without a sign of life another consumer of the group takes what one holds. Default 30,000. */
  readonly takeoverMs?: number
  readonly logger?: Logger
  /** Spans for publishing and for handlers; the context travels with the messages. See `otelTracer`. */
  readonly tracer?: Tracer
  /** Changes the text of handler errors before it is logged, written to the dead letters, or shown in a span. */
  readonly redact?: Redact
  readonly clock?: Clock
}

const NAMES = [
  ...(['group', 'events', 'source', 'concurrency', 'retry', 'confirmTimeoutMs', 'drainTimeoutMs'] as const),
  ...(['takeoverMs', 'logger', 'tracer', 'redact', 'clock'] as const),
]

/** Copies the options of a bus: those of every bus, and those of this broker, whose names are `own`. */
export function readBusOptions<T extends BusOptions>(
  given: T | undefined,
  own: readonly Exclude<keyof T & string, keyof BusOptions>[],
): T {
  return readSettings<T>('a bus', given, [...NAMES, ...own])
}

export type BusSettings = ReturnType<typeof busSettingsOf>

/** Fills in the defaults of options that readBusOptions() has copied. Throws InvalidSettingError for bad values. */
export function busSettingsOf(options: BusOptions) {
  const { group, logger = jsonLogger() } = options
  if (group !== undefined) checkBrokerName('group', group)
  const names = ['maxAttempts', 'maxDeliveries', 'policy'] as const
  const retry = readSettings<NonNullable<BusOptions['retry']>>('retry', options.retry, names, 'retry.')
  const maxAttempts = integerSetting('retry.maxAttempts', retry.maxAttempts ?? retry.policy?.maxAttempts, {
    default: 5,
    min: 1,
  })
  requireMethods('retry.policy', retry.policy, ['delayMs'])
  requireMethods('logger', logger, ['debug', 'info', 'warn', 'error'])
  requireMethods('tracer', options.tracer, ['start'])
  requireMethods('clock', options.clock, ['now', 'monotonic', 'setTimer'])
  if (options.redact !== undefined && typeof options.redact !== 'function')
    throw new InvalidSettingError('redact', 'must be a function')
  return {
    group,
    events: options.events ?? [],
    source: options.source,
    concurrency: integerSetting('concurrency', options.concurrency, { default: 16, min: 1 }),
    maxAttempts,
    maxDeliveries: integerSetting('retry.maxDeliveries', retry.maxDeliveries, {
      default: maxAttempts + 10,
      min: 1,
    }),
    retryPolicy: retry.policy ?? exponentialBackoff(200, 10_000),
    confirmTimeoutMs: durationSetting('confirmTimeoutMs', options.confirmTimeoutMs, {
      default: 10_000,
      min: 1,
    }),
    drainTimeoutMs: durationSetting('drainTimeoutMs', options.drainTimeoutMs, { default: 5_000 }),
    takeoverMs: durationSetting('takeoverMs', options.takeoverMs, { default: 30_000, min: 100 }),
    clock: options.clock ?? systemClock,
    logger: safeLogger(logger, options.redact),
    tracer: options.tracer && unfailingTracer(options.tracer),
    redact: options.redact,
  }
}

/** The name of a group, stream, exchange or topic, in letters that every broker takes. */
export function checkBrokerName(setting: string, name: unknown): string {
  if (typeof name === 'string' && isClean(name) && /^[\w.-]{1,100}$/.test(name)) return name
  throw new InvalidSettingError(setting, 'must be 1 to 100 letters, digits, dots, dashes or underscores')
}
