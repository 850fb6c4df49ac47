import type { EventDefinition } from '../core/define-event.js'
import { InvalidSettingError } from '../core/errors.js'
import { durationSetting, integerProblem, integerSetting } from '../core/number-settings.js'
import { readSettings } from '../core/settings.js'
import { isClean } from '../core/text.js'
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

interface Registered {
  readonly definition: EventDefinition | undefined
  readonly registration: Registration
}

const HANDLER = ['timeoutMs', 'exclusive', 'concurrency', 'retry'] as const

const NAME = 'must be a string of 1 to 255 characters without control characters'

const PATTERN = /^([^*]+\.)?\*$/
const PATTERNS = "this pattern: there are 'order.*' (all that begins with 'order.') and '*'"

function isName(value: unknown): value is string {
  return typeof value === 'string' && value.length >= 1 && value.length <= 255 && isClean(value)
}

/** Checks what `on()` was given and brings it into one form. */
export function registrationOf(
  route: Route,
  name: string,
  handle: HandlerFunction,
  given: HandlerOptions | undefined,
): Registered {
  checkHandler(name, handle, 'on(event, name, handler)')
  const options = readSettings(`handler ${name}`, given, HANDLER)
  const { timeoutMs, concurrency, exclusive, retry } = checkedOptions(options)
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
  if (typeof given !== 'object' || given === null) throw new InvalidSettingError('size', MISSING_SIZE)
  const options = readSettings(`handler ${name}`, given, ['size', 'waitMs', ...HANDLER])
  const { size } = options
  if (integerProblem(size, { min: 1, max: LARGEST_BATCH }) !== null) {
    throw new InvalidSettingError('size', MISSING_SIZE)
  }
  const waitMs = durationSetting('waitMs', options.waitMs, { default: 50 })
  const { timeoutMs, exclusive, retry } = checkedOptions(options)
  const concurrency = options.concurrency ?? 1
  const lane = new Batcher({ name, size, waitMs, concurrency, timeoutMs, handle })
  const { definition, ...routed } = routeOf(route, name)
  // The batch has its own timeout: waiting for company does not count.
  return { definition, registration: { name, handle: lane, ...routed, exclusive, timeoutMs: 0, retry, lane } }
}

/** What is in memory at a time stays bounded. */
const LARGEST_BATCH = 1_000
const MISSING_SIZE = `must be a whole number from 1 to ${LARGEST_BATCH}: onBatch(event, name, { size: 100 }, handler)`

function checkHandler(name: unknown, handle: unknown, usage: string): void {
  if (!isName(name)) throw new InvalidSettingError('handler name', NAME)
  if (typeof handle !== 'function')
    throw new InvalidSettingError(`handler ${name}`, `must be a function: ${usage}`)
}

function checkedOptions(options: HandlerOptions) {
  if (options.exclusive !== undefined && typeof options.exclusive !== 'boolean') {
    throw new InvalidSettingError('exclusive', 'must be true or false')
  }
  const { exclusive = false, concurrency = Number.POSITIVE_INFINITY, retry } = options
  const timeoutMs = durationSetting('timeoutMs', options.timeoutMs, { default: 0 })
  if (concurrency !== Number.POSITIVE_INFINITY) integerSetting('concurrency', concurrency, { min: 1 })
  return { timeoutMs, exclusive, concurrency, retry: retry === undefined ? undefined : checkedRetry(retry) }
}

function checkedRetry(given: HandlerRetry): HandlerRetry {
  const retry = readSettings('retry', given, ['maxAttempts', 'policy'], 'retry.')
  const { maxAttempts, policy } = retry
  if (maxAttempts !== undefined) integerSetting('retry.maxAttempts', maxAttempts, { min: 1 })
  if (policy !== undefined && typeof policy?.delayMs !== 'function') {
    throw new InvalidSettingError('retry.policy', 'must have a delayMs() function; see exponentialBackoff()')
  }
  const ofPolicy = policy?.maxAttempts
  if (ofPolicy !== undefined) integerSetting('retry.policy.maxAttempts', ofPolicy, { min: 1 })
  const limit = maxAttempts ?? ofPolicy
  return { ...(policy && { policy }), ...(limit !== undefined && { maxAttempts: limit }) }
}

function routeOf(
  route: Route,
  name: string,
): Pick<Registration, 'eventType' | 'aggregateType'> & { definition: EventDefinition | undefined } {
  const bound = typeof route === 'object' && route !== null
  const { type, aggregateType } = bound
    ? readSettings(`handler ${name}`, route, ['aggregateType', 'type'], 'event.')
    : { type: route, aggregateType: null }
  const definition = typeof type === 'function' ? type : undefined
  const eventType = definition ? definition.eventType : (type as string)
  if (!isName(eventType)) {
    throw new InvalidSettingError(`handler ${name}`, `needs an event: a definition, or a name, which ${NAME}`)
  }
  if (eventType.includes('*') && !PATTERN.test(eventType)) {
    throw new InvalidSettingError(`handler ${name}`, `cannot have ${PATTERNS}`)
  }
  if (aggregateType !== null && !isName(aggregateType)) throw new InvalidSettingError('aggregateType', NAME)
  return { definition, eventType, aggregateType }
}
