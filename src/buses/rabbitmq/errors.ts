import { AftercommitError, BrokerUnavailableError } from '../../core/errors.js'
import { causesOf } from '../../core/unknown.js'

export const BROKER = 'RabbitMQ'

/** Reply codes of AMQP. */
export const ACCESS_REFUSED = 403
export const NOT_FOUND = 404
export const RESOURCE_LOCKED = 405
export const PRECONDITION_FAILED = 406
const CONNECTION_FORCED = 320
const INTERNAL_ERROR = 541

export function codeOf(error: unknown): unknown {
  return ((error ?? {}) as { readonly code?: unknown }).code
}

/** Returns whether an error or one of its causes concerns the broker or the connection. */
export function isUnavailable(error: unknown): boolean {
  return causesOf(error).some((cause) => cause instanceof BrokerUnavailableError || isConnectionLost(cause))
}

const NETWORK_ERROR =
  /^(ECONN\w+|EPIPE|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|ERR_STREAM_DESTROYED)$/

/** Returns whether the connection or channel is closed. amqplib reports this with names and texts, and without codes. */
export function isConnectionLost(error: unknown): boolean {
  const { name, message, code } = (error ?? {}) as Record<string, unknown>
  if (name === 'IllegalOperationError' || message === 'channel closed') return true
  if (message === 'Channel ended, no reply will be forthcoming' || message === 'Heartbeat timeout')
    return true
  const isClosedByBroker = code === CONNECTION_FORCED || code === INTERNAL_ERROR
  return isClosedByBroker || (typeof code === 'string' && NETWORK_ERROR.test(code))
}

export function isNack(error: unknown): boolean {
  return error instanceof Error && error.message === 'message nacked'
}

/**
 * Converts the error with which the broker has closed a channel. A user who may not publish to the exchange gets
 * BrokerUnavailableError. A user who may not publish to one topic gets the error unchanged, because other topics may work.
 */
export function publishErrorOf(refusal: unknown): unknown {
  const { message } = refusal as { readonly message?: unknown }
  if (codeOf(refusal) !== ACCESS_REFUSED || String(message).includes('access to topic')) return refusal
  return new BrokerUnavailableError(BROKER, 'does not let this user publish', refusal)
}

/** Returns the size limit that the broker has named in a refusal, or infinity. */
export function maxBytesOf(refusal: unknown): number {
  const { message } = refusal as { readonly message?: unknown }
  const [, bytes] = /larger than (?:configured )?max size (\d+)/.exec(String(message)) ?? []
  return bytes === undefined ? Number.POSITIVE_INFINITY : Number(bytes)
}

export function unroutedError(exchange: string, routingKey: string): AftercommitError {
  return new AftercommitError(
    'UNROUTED',
    `No queue is bound to the exchange ${JSON.stringify(exchange)} for ${JSON.stringify(routingKey)}. Start a group that subscribes to this type, and publish the event again.`,
  )
}

export function timeoutError(): BrokerUnavailableError {
  return new BrokerUnavailableError(BROKER, 'has not confirmed in time')
}
