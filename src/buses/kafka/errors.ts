export const BROKER = 'Kafka'

const TOO_LARGE = ['MESSAGE_TOO_LARGE', 'RECORD_LIST_TOO_LARGE']
/** Errors that the message causes, even if they occur together with other errors. */
const REFUSALS = new Set([
  ...TOO_LARGE,
  'INVALID_RECORD',
  'INVALID_TIMESTAMP',
  'UNSUPPORTED_FOR_MESSAGE_FORMAT',
])
const UNREACHABLE_CODES = new Set(['PLT_KFK_NETWORK', 'PLT_KFK_TIMEOUT', 'PLT_KFK_AUTHENTICATION'])
const UNREACHABLE_NAMES =
  /^KafkaJS(Connection|RequestTimeout|BrokerNotFound|NoBrokerAvailable|MetadataNotLoaded|TopicMetadataNotLoaded|SASLAuthentication|LockTimeout)/
const NOT_ALLOWED = /_AUTHORIZATION_FAILED$|_AUTHENTICATION_FAILED$|^POLICY_VIOLATION$/

interface ClientError {
  readonly name?: unknown
  readonly code?: unknown
  /** Name of the error in the protocol, as kafkajs provides it. */
  readonly type?: unknown
  /** Name of the error in the protocol, as @platformatic/kafka provides it. */
  readonly apiId?: unknown
  readonly retriable?: unknown
  readonly canRetry?: unknown
  readonly cause?: unknown
  readonly errors?: unknown
}

/** Returns whether the broker refused the message. */
export function isRefusal(error: unknown): boolean {
  return partsOf(error).some((part) => REFUSALS.has(nameOf(part)))
}

/** Returns whether the broker refused the message because of its size. */
export function isTooLarge(error: unknown): boolean {
  return TOO_LARGE.some((name) => hasName(error, name))
}

/** Returns whether the broker, the connection or a missing permission caused the error, and not the message. */
export function isUnavailable(error: unknown): boolean {
  const parts = partsOf(error)
  if (parts.some((part) => REFUSALS.has(nameOf(part)))) return false
  return parts.some(
    (part) =>
      UNREACHABLE_CODES.has(String(part.code)) ||
      UNREACHABLE_NAMES.test(String(part.name)) ||
      NOT_ALLOWED.test(nameOf(part)) ||
      (nameOf(part) !== '' && (part.retriable === true || part.canRetry === true)),
  )
}

export function hasName(error: unknown, name: string): boolean {
  return partsOf(error).some((part) => nameOf(part) === name)
}

function nameOf(part: ClientError): string {
  return String(part.type ?? part.apiId ?? '')
}

/** Returns the error, its causes and its aggregated errors. */
function partsOf(error: unknown): ClientError[] {
  const parts: ClientError[] = []
  const left: unknown[] = [error]
  while (left.length > 0 && parts.length < 100) {
    const part = left.shift()
    if (typeof part !== 'object' || part === null || parts.includes(part)) continue
    parts.push(part)
    left.push((part as ClientError).cause)
    const { errors } = part as ClientError
    if (Array.isArray(errors)) left.push(...errors)
  }
  return parts
}
