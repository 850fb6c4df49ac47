import { exponentialBackoff, type RetryPolicy } from '../core/backoff.js'
import { type Clock, systemClock } from '../core/clock.js'
import type { EventDefinition } from '../core/define-event.js'
import { InvalidSettingError } from '../core/errors.js'
import { durationSetting, integerSetting } from '../core/number-settings.js'
import { hasMethod, readArray, readSettings, requireMethods } from '../core/settings.js'
import { read } from '../core/unknown.js'
import { jsonLogger, type Logger, type Redact, safeLogger } from '../observe/logger.js'
import { type MetricsExporter, unfailingMetrics } from '../observe/metrics.js'
import { type Tracer, unfailingTracer } from '../observe/tracing.js'
import type { OutboxStore } from '../store.js'
import type { CreateScope } from '../work/handler-call.js'
import type { Interceptor } from '../work/interceptors.js'
import type { OnDead } from '../work/settlement-effects.js'

export interface DispatcherSettings {
  /** Handlers that run at the same time. Default 4. */
  readonly concurrency?: number
  /** Events that wait in memory after their commit. Default 1,000. */
  readonly hotQueueSize?: number
  /** Claimed events that wait in memory. Default 1,000. */
  readonly coldQueueSize?: number
  /** Payload bytes that may wait in each of the two. Default 64 MiB. */
  readonly queueBytes?: number
  /** How long a stop waits for handlers under way. Default 5,000. */
  readonly drainTimeoutMs?: number
  /** A handler that runs longer than this is reported. Default 300,000. */
  readonly stuckAfterMs?: number
  /** What becomes of an event for which no consumer has registered a handler within 7 days. Default `dead`. */
  readonly onUnroutable?: 'dead' | 'retry'
  /** Age from which such an event counts as unroutable. Default 24 hours; 0 means immediately. */
  readonly unroutableGraceMs?: number
  readonly interceptors?: readonly Interceptor[]
  readonly createScope?: CreateScope
}

export interface PollerSettings {
  /** Default 5,000. */
  readonly pollIntervalMs?: number
  /** Rows per claim. Default 200. */
  readonly batchSize?: number
  /** How long an instance that died keeps its events from the others. Default 30,000. */
  readonly leaseMs?: number
  /** Rows younger than this are not claimed. Default 0. */
  readonly skipRecentMs?: number
}

export interface RetrySettings {
  /** Failed deliveries before an event is dead. Default 10. */
  readonly maxAttempts?: number
  /** Default `exponentialBackoff(200, 60_000)`. */
  readonly policy?: RetryPolicy
}

export interface OrderingSettings {
  /** What a dead event does to its ordering key: it goes on, or waits until somebody acts. Default `continue`. */
  readonly onDead?: 'continue' | 'halt'
}

export interface RetentionSettings {
  /** How long done events are kept. Default 7 days; 0 deletes on completion and is the fastest. */
  readonly doneMs?: number
  /** How long it is remembered what an exactly-once handler has processed. Default 30 days. */
  readonly processedMs?: number
}

export interface OutboxOptions<Client> {
  readonly store: OutboxStore<Client>
  /** Event types known from the start; handlers add theirs. */
  readonly events?: readonly EventDefinition[]
  readonly dispatcher?: DispatcherSettings
  readonly poller?: PollerSettings
  readonly retry?: RetrySettings
  readonly ordering?: OrderingSettings
  readonly retention?: RetentionSettings
  /** JSON lines on standard output by default; a pino instance fits as it is. */
  readonly logger?: Logger
  readonly metrics?: MetricsExporter
  /** Spans for publishing, handlers and relays; the context travels with the events. See `otelTracer`. */
  readonly tracer?: Tracer
  /** Changes the text of handler errors before it is logged, or shown in a span. */
  readonly redact?: Redact
  /** Called once when an event is dead. An error in it is logged. */
  readonly onDead?: OnDead
  readonly clock?: Clock
}

const DAY_MS = 24 * 3_600_000

export type Settings = ReturnType<typeof settingsOf>

/** Fills in the defaults; refuses bad values with an error that names the setting. */
export function settingsOf<Client>(given: OutboxOptions<Client>) {
  const options = readSettings<OutboxOptions<Client>>('createOutbox()', given, OUTBOX)
  if (!hasMethod(options.store, 'claim') || !hasMethod(options.store, 'append')) {
    throw new InvalidSettingError('store', 'must be a store; pass for example store: postgresStore(pool)')
  }
  const dispatcher = readSettings('dispatcher', options.dispatcher, DISPATCHER, 'dispatcher.')
  const poller = readSettings('poller', options.poller, POLLER, 'poller.')
  const retry = readSettings('retry', options.retry, ['maxAttempts', 'policy'], 'retry.')
  const ordering = readSettings('ordering', options.ordering, ['onDead'], 'ordering.')
  const retention = readSettings('retention', options.retention, ['doneMs', 'processedMs'], 'retention.')
  const settings = {
    store: options.store,
    events: readArray('events', options.events ?? [], NO_EVENTS),
    concurrency: integerSetting('dispatcher.concurrency', dispatcher.concurrency, { default: 4, min: 1 }),
    hotQueueSize: integerSetting('dispatcher.hotQueueSize', dispatcher.hotQueueSize, {
      default: 1_000,
      min: 1,
    }),
    coldQueueSize: integerSetting('dispatcher.coldQueueSize', dispatcher.coldQueueSize, {
      default: 1_000,
      min: 1,
    }),
    queueBytes: integerSetting('dispatcher.queueBytes', dispatcher.queueBytes, {
      default: 64 * 1_048_576,
      min: 1,
    }),
    drainTimeoutMs: durationSetting('dispatcher.drainTimeoutMs', dispatcher.drainTimeoutMs, {
      default: 5_000,
    }),
    stuckAfterMs: durationSetting('dispatcher.stuckAfterMs', dispatcher.stuckAfterMs, {
      default: 300_000,
      min: 1,
    }),
    onUnroutable: dispatcher.onUnroutable ?? 'dead',
    unroutableGraceMs: durationSetting('dispatcher.unroutableGraceMs', dispatcher.unroutableGraceMs, {
      default: DAY_MS,
    }),
    interceptors: checkedInterceptors(dispatcher.interceptors ?? []),
    createScope: dispatcher.createScope,
    pollIntervalMs: durationSetting('poller.pollIntervalMs', poller.pollIntervalMs, {
      default: 5_000,
      min: 1,
    }),
    batchSize: integerSetting('poller.batchSize', poller.batchSize, { default: 200, min: 1 }),
    leaseMs: durationSetting('poller.leaseMs', poller.leaseMs, { default: 30_000, min: 100 }),
    skipRecentMs: durationSetting('poller.skipRecentMs', poller.skipRecentMs, { default: 0 }),
    maxAttempts: integerSetting('retry.maxAttempts', retry.maxAttempts ?? retry.policy?.maxAttempts, {
      default: 10,
      min: 1,
    }),
    retryPolicy: retry.policy ?? exponentialBackoff(200, 60_000),
    onDeadKey: ordering.onDead ?? 'continue',
    doneMs: durationSetting('retention.doneMs', retention.doneMs, { default: 7 * DAY_MS }),
    processedMs: durationSetting('retention.processedMs', retention.processedMs, {
      default: 30 * DAY_MS,
      min: 1,
    }),
    logger: options.logger ?? jsonLogger(),
    metrics: options.metrics,
    redact: options.redact,
    onDead: options.onDead,
    clock: options.clock ?? systemClock,
  }
  if (settings.onUnroutable !== 'dead' && settings.onUnroutable !== 'retry') {
    throw new InvalidSettingError('dispatcher.onUnroutable', "must be 'dead' or 'retry'")
  }
  if (settings.onDeadKey !== 'continue' && settings.onDeadKey !== 'halt') {
    throw new InvalidSettingError('ordering.onDead', "must be 'continue' or 'halt'")
  }
  if (!hasMethod(settings.retryPolicy, 'delayMs')) {
    throw new InvalidSettingError('retry.policy', 'must have a delayMs() function; see exponentialBackoff()')
  }
  requireMethods('metrics', options.metrics, ['count', 'gauge', 'duration'])
  requireMethods('tracer', options.tracer, ['start'])
  requireMethods('clock', options.clock, ['now', 'monotonic', 'setTimer'])
  const functions = { redact: options.redact, onDead: options.onDead, createScope: dispatcher.createScope }
  for (const [name, given] of Object.entries(functions)) {
    if (given !== undefined && typeof given !== 'function') {
      throw new InvalidSettingError(
        name === 'createScope' ? 'dispatcher.createScope' : name,
        'must be a function',
      )
    }
  }
  if (settings.events.some((one) => typeof one !== 'function')) {
    throw new InvalidSettingError('events', NO_EVENTS)
  }
  for (const level of ['debug', 'info', 'warn', 'error'] as const) {
    if (!hasMethod(settings.logger, level)) {
      throw new InvalidSettingError('logger', `must have a ${level}() function; use silentLogger for none`)
    }
  }
  const metrics = settings.metrics && unfailingMetrics(settings.metrics)
  const tracer = options.tracer && unfailingTracer(options.tracer)
  return { ...settings, metrics, tracer, logger: safeLogger(settings.logger, settings.redact) }
}

function checkedInterceptors(interceptors: readonly Interceptor[]): readonly Interceptor[] {
  const copy = readArray('dispatcher.interceptors', interceptors, 'must be an array of interceptors')
  return copy.map((interceptor: unknown, at) => {
    const members = [read(interceptor, 'beforeDispatch'), read(interceptor, 'afterDispatch')]
    const given = members.filter((member) => member !== undefined)
    if (given.length === 0 || given.some((member) => typeof member !== 'function')) {
      throw new InvalidSettingError(
        `dispatcher.interceptors[${at}]`,
        'must be an object with a beforeDispatch() function, an afterDispatch() function, or both',
      )
    }
    return interceptor as Interceptor
  })
}

const NO_EVENTS = 'must be an array of event definitions; see defineEvent()'

const OUTBOX = [
  ...(['store', 'events', 'dispatcher', 'poller', 'retry', 'ordering', 'retention', 'logger'] as const),
  ...(['metrics', 'redact', 'tracer', 'onDead', 'clock'] as const),
]
const DISPATCHER = [
  ...(['concurrency', 'hotQueueSize', 'coldQueueSize', 'queueBytes', 'drainTimeoutMs'] as const),
  ...(['stuckAfterMs', 'onUnroutable', 'unroutableGraceMs', 'interceptors', 'createScope'] as const),
]
const POLLER = ['pollIntervalMs', 'batchSize', 'leaseMs', 'skipRecentMs'] as const
