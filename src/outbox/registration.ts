import type { EventDefinition } from '../core/define-event.js'
import { InvalidSettingError } from '../core/errors.js'
import {
  checkEventType,
  checkHandlerName,
  handlerCalled,
  isName,
  kindOfAny,
  nameReason,
} from '../core/handler-checks.js'
import { readSettings } from '../core/settings.js'
import { read } from '../core/unknown.js'
import { Batcher, type BatchFunction } from '../dispatcher/batcher.js'
import { Gate } from '../dispatcher/gate.js'
import type { HandlerFunction, HandlerOptions, HandlerRetry, Registration } from '../dispatcher/routing.js'

type EventName = string | EventDefinition
export type Route = EventName | { readonly aggregateType: string; readonly type: EventName }

export interface BatchHandlerOptions extends HandlerOptions {
  /** Events in one call, at most: 1 to 1,000. A call with 8 MiB of payload gets no more. */
  readonly size: number
  /** How long an event waits for others. Default 50. */
  readonly waitMs?: number
}

/** A registration, and the definition of its event if it was given one. */
export interface Registered {
  readonly definition: EventDefinition | undefined
  readonly registration: Registration
}

const HANDLER = ['timeoutMs', 'exclusive', 'concurrency', 'retry'] as const

function isWhole(value: number): boolean {
  return Number.isSafeInteger(value) && value >= 1
}

/** Checks what `on()` was given and brings it into one form. */
export function registrationOf(
  route: Route,
  name: string,
  handle: HandlerFunction,
  given: HandlerOptions | undefined,
): Registered {
  checkHandler(name, handle, 'on(event, name, handler)')
  const of = handlerCalled(name)
  const options = readSettings(of, given, HANDLER)
  const { timeoutMs, concurrency, exclusive, retry } = checkedOptions(options, of)
  const lane = concurrency === Number.POSITIVE_INFINITY ? undefined : new Gate(concurrency)
  const { definition, ...routed } = routeOf(route, name)
  return { definition, registration: { name, handle, ...routed, exclusive, timeoutMs, retry, lane } }
}

/** The same for `onBatch()`: to the dispatcher it is a handler that resolves with the batch its event is part of. */
export function batchRegistrationOf(
  route: Route,
  name: string,
  handle: BatchFunction,
  given: BatchHandlerOptions,
): Registered {
  checkHandler(name, handle, 'onBatch(event, name, { size }, handler)')
  const of = handlerCalled(name)
  if (typeof given !== 'object' || given === null) throw new InvalidSettingError('size', MISSING_SIZE, { of })
  const options = readSettings(of, given, ['size', 'waitMs', ...HANDLER])
  const { size, waitMs = 50 } = options
  if (!isWhole(size) || size > LARGEST_BATCH) throw new InvalidSettingError('size', MISSING_SIZE, { of })
  if (!Number.isFinite(waitMs) || waitMs < 0) throw new InvalidSettingError('waitMs', MILLISECONDS, { of })
  const { timeoutMs, exclusive, retry } = checkedOptions(options, of)
  const concurrency = options.concurrency ?? 1
  const lane = new Batcher({ name, size, waitMs, concurrency, timeoutMs, handle })
  const { definition, ...routed } = routeOf(route, name)
  // The batch has its own timeout: waiting for company does not count.
  return { definition, registration: { name, handle: lane, ...routed, exclusive, timeoutMs: 0, retry, lane } }
}

/** What is in memory at a time stays bounded. */
const LARGEST_BATCH = 1_000
const MILLISECONDS = 'must be a number of milliseconds, 0 or more'
const WHOLE = 'must be a whole number, 1 or more'
const NO_POLICY = 'must have a delayMs() function. Use exponentialBackoff() or fixedDelay()'
const MISSING_SIZE = `must be a whole number from 1 to ${LARGEST_BATCH}. Call onBatch(event, name, { size: 100 }, handler)`

function checkHandler(name: unknown, handle: unknown, usage: string): void {
  const of = handlerCalled(checkHandlerName(name, usage))
  if (typeof handle === 'function') return
  throw new InvalidSettingError('function', `must be a function, not ${kindOfAny(handle)}. Call ${usage}`, {
    of,
  })
}

function checkedOptions(options: HandlerOptions, of: string) {
  if (options.exclusive !== undefined && typeof options.exclusive !== 'boolean') {
    throw new InvalidSettingError('exclusive', 'must be true or false', { of })
  }
  const { timeoutMs = 0, exclusive = false, concurrency = Number.POSITIVE_INFINITY, retry } = options
  if (!Number.isFinite(timeoutMs) || timeoutMs < 0) {
    throw new InvalidSettingError('timeoutMs', MILLISECONDS, { of })
  }
  if (concurrency !== Number.POSITIVE_INFINITY && !isWhole(concurrency)) {
    throw new InvalidSettingError('concurrency', WHOLE, { of })
  }
  const checked = retry === undefined ? undefined : checkedRetry(retry, of)
  return { timeoutMs, exclusive, concurrency, retry: checked }
}

function checkedRetry(given: HandlerRetry, of: string): HandlerRetry {
  const retry = readSettings(`retry of ${of}`, given, ['maxAttempts', 'policy'], 'retry.')
  const { maxAttempts, policy } = retry
  if (maxAttempts !== undefined && !isWhole(maxAttempts)) {
    throw new InvalidSettingError('retry.maxAttempts', WHOLE, { of })
  }
  if (policy !== undefined && typeof policy?.delayMs !== 'function') {
    throw new InvalidSettingError('retry.policy', NO_POLICY, { of })
  }
  const ofPolicy = policy?.maxAttempts
  if (ofPolicy !== undefined && !isWhole(ofPolicy)) {
    throw new InvalidSettingError('retry.policy.maxAttempts', WHOLE, { of })
  }
  const limit = maxAttempts ?? ofPolicy
  return { ...(policy && { policy }), ...(limit !== undefined && { maxAttempts: limit }) }
}

function routeOf(
  route: Route,
  name: string,
): Pick<Registration, 'eventType' | 'aggregateType'> & { definition: EventDefinition | undefined } {
  const of = handlerCalled(name)
  const { type, aggregateType } = isBound(route, of)
    ? readSettings(`event of ${of}`, route, ['aggregateType', 'type'], 'event.')
    : { type: route, aggregateType: null }
  const definition = typeof type === 'function' ? type : undefined
  const eventType = checkEventType(read(definition, 'eventType') ?? type, name)
  if (aggregateType !== null && !isName(aggregateType)) {
    throw new InvalidSettingError('event.aggregateType', nameReason(aggregateType), { of })
  }
  return { definition, eventType, aggregateType }
}

/** Whether the route is an object. Throws for an event in the place of its definition. */
function isBound(route: Route, of: string): route is Exclude<Route, EventName> {
  if (kindOfAny(route) !== 'an object') return false
  if (read(route, 'eventType') !== undefined) {
    throw new InvalidSettingError('event', 'is an event. Pass the definition that makes it', { of })
  }
  return true
}
