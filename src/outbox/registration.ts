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
import { durationSetting, integerProblem, integerSetting } from '../core/number-settings.js'
import { readSettings } from '../core/settings.js'
import { read } from '../core/unknown.js'
import type { BatchFunction, HandlerFunction } from '../handler.js'
import type { BatchRegistration, HandlerOptions, HandlerRetry, Registration } from '../work/routes.js'

type EventName = string | EventDefinition
export type Route = EventName | { readonly aggregateType: string; readonly type: EventName }

export interface BatchHandlerOptions extends HandlerOptions {
  /** Events in one call, at most: 1 to 1,000. A call with 8 MiB of payload gets no more. */
  readonly size: number
  /** How long an event waits for others. Default 50. */
  readonly waitMs?: number
}

/** A registration, and the definition of its event if it was given one. */
export interface Registered<R extends Registration = Registration> {
  readonly definition: EventDefinition | undefined
  readonly registration: R
}

const HANDLER = ['timeoutMs', 'exclusive', 'concurrency', 'retry'] as const

/** Checks the arguments of `on()`. */
export function registrationOf(
  route: Route,
  name: string,
  handle: HandlerFunction,
  given: HandlerOptions | undefined,
): Registered {
  checkHandler(name, handle, 'on(event, name, handler)')
  const of = handlerCalled(name)
  const options = readSettings(of, given, HANDLER)
  const { definition, ...routed } = routeOf(route, name)
  const checked = checkedOptions(options, of)
  return { definition, registration: { name, handle, batch: null, ...routed, ...checked } }
}

/** Checks the arguments of `onBatch()`. */
export function batchRegistrationOf(
  route: Route,
  name: string,
  handle: BatchFunction,
  given: BatchHandlerOptions,
): Registered<BatchRegistration> {
  checkHandler(name, handle, 'onBatch(event, name, { size }, handler)')
  const of = handlerCalled(name)
  if (typeof given !== 'object' || given === null) throw new InvalidSettingError('size', MISSING_SIZE, { of })
  const options = readSettings(of, given, ['size', 'waitMs', ...HANDLER])
  const { size } = options
  if (integerProblem(size, { min: 1, max: LARGEST_BATCH }) !== null) {
    throw new InvalidSettingError('size', MISSING_SIZE, { of })
  }
  const waitMs = durationSetting('waitMs', options.waitMs, { default: 50, of })
  const checked = { ...checkedOptions(options, of), concurrency: options.concurrency ?? 1 }
  const { definition, ...routed } = routeOf(route, name)
  return { definition, registration: { name, handle, batch: { size, waitMs }, ...routed, ...checked } }
}

/** Bounds the memory that a batch takes. */
const LARGEST_BATCH = 1_000
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
  const { exclusive = false, concurrency = Number.POSITIVE_INFINITY, retry } = options
  const timeoutMs = durationSetting('timeoutMs', options.timeoutMs, { default: 0, of })
  if (concurrency !== Number.POSITIVE_INFINITY) integerSetting('concurrency', concurrency, { min: 1, of })
  const checked = retry === undefined ? undefined : checkedRetry(retry, of)
  return { timeoutMs, exclusive, concurrency, retry: checked }
}

function checkedRetry(given: HandlerRetry, of: string): HandlerRetry {
  const retry = readSettings(`retry of ${of}`, given, ['maxAttempts', 'policy'], 'retry.')
  const { maxAttempts, policy } = retry
  if (maxAttempts !== undefined) integerSetting('retry.maxAttempts', maxAttempts, { min: 1, of })
  if (policy !== undefined && typeof policy?.delayMs !== 'function') {
    throw new InvalidSettingError('retry.policy', NO_POLICY, { of })
  }
  const ofPolicy = policy?.maxAttempts
  if (ofPolicy !== undefined) integerSetting('retry.policy.maxAttempts', ofPolicy, { min: 1, of })
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
