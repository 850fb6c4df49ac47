import { exponentialBackoff, type RetryPolicy } from '../core/backoff.js'
import { type Clock, systemClock } from '../core/clock.js'
import type { EventDefinition } from '../core/define-event.js'
import { InvalidSettingError } from '../core/errors.js'
import { durationSetting, integerSetting } from '../core/number-settings.js'
import { readSettings, requireMethods } from '../core/settings.js'
import { isClean } from '../core/text.js'
import { jsonLogger, type Logger, type Redact, safeLogger } from '../observe/logger.js'
import { type Tracer, unfailingTracer } from '../observe/tracing.js'

/** Options that all broker buses have in common. */
export interface BusOptions {
  /** Required to subscribe. Consumers with the same group share the messages. Each group receives every message. */
  readonly group?: string
  /** Definitions that validate and decode events. Definitions that are passed to `subscribe` need not be repeated here. */
  readonly events?: Iterable<EventDefinition>
  /** CloudEvents `source` of published events, a URI reference. Default 'aftercommit'. */
  readonly source?: string
  /** Maximum number of messages whose handlers run at the same time. Default 16. */
  readonly concurrency?: number
  /** Limits and delays for failed messages. */
  readonly retry?: {
    /** Number of failed attempts after which a message is dead-lettered. Default 5. */
    readonly maxAttempts?: number
    /**
     * Number of deliveries by the broker after which a message is dead-lettered without calling a handler. This protects
     * consumers from a message that crashes them. A lost connection or a stop counts a delivery for every message that the
     * consumer had, so the limit is higher than `maxAttempts`. Default `maxAttempts` + 10.
     */
    readonly maxDeliveries?: number
    /** Default `exponentialBackoff(200, 10_000)`. */
    readonly policy?: RetryPolicy
  }
  /** Maximum time in milliseconds that a publish waits for the confirmation of the broker. Default 10,000. */
  readonly confirmTimeoutMs?: number
  /** Time in milliseconds that `stop()` waits for running handlers. Default 5,000. */
  readonly drainTimeoutMs?: number
  /** Time in milliseconds after which the messages of a silent consumer go to another consumer of the group. Default 30,000. */
  readonly takeoverMs?: number
  readonly logger?: Logger
  /** Receives spans for publishing and for handlers. The trace context travels with the messages. See `otelTracer`. */
  readonly tracer?: Tracer
  /** Changes the text of handler errors before it reaches logs, dead letters and spans. */
  readonly redact?: Redact
  readonly clock?: Clock
}

/** Checked options of a bus, with defaults for absent values. */
export interface BusSettings {
  readonly group: string | undefined
  readonly events: Iterable<EventDefinition>
  readonly source: string | undefined
  readonly concurrency: number
  readonly maxAttempts: number
  readonly maxDeliveries: number
  readonly retryPolicy: RetryPolicy
  readonly confirmTimeoutMs: number
  readonly drainTimeoutMs: number
  readonly takeoverMs: number
  readonly clock: Clock
  readonly logger: Logger
  readonly tracer: Tracer | undefined
  readonly redact: Redact | undefined
}

const NAMES = [
  ...(['group', 'events', 'source', 'concurrency', 'retry', 'confirmTimeoutMs', 'drainTimeoutMs'] as const),
  ...(['takeoverMs', 'logger', 'tracer', 'redact', 'clock'] as const),
]

/**
 * Reads the options of a bus once, checks them and adds the defaults. `own` lists the names of the options that only this
 * bus has. Their values are returned unchanged, and the bus must check them. Throws InvalidSettingError for an unknown name
 * or an invalid value.
 */
export function readBusOptions<
  T extends BusOptions,
  K extends Exclude<keyof T & string, keyof BusOptions> = never,
>(given: T | undefined, own: readonly K[] = []): BusSettings & Pick<T, K> {
  const options: T = readSettings<T>('a bus', given, [...NAMES, ...own])
  const ownOptions = Object.fromEntries(own.map((name) => [name, options[name]])) as Pick<T, K>
  return { ...ownOptions, ...checked(options) }
}

function checked(options: BusOptions): BusSettings {
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

/** Checks the name of a group, stream, exchange or topic. All brokers accept the allowed characters. */
export function checkBrokerName(setting: string, name: unknown): string {
  if (typeof name === 'string' && isClean(name) && /^[\w.-]{1,100}$/.test(name)) return name
  throw new InvalidSettingError(setting, 'must be 1 to 100 letters, digits, dots, dashes or underscores')
}
