import { quoteText, sanitizeText } from '../text.js'
import { describeError } from '../unknown.js'
import { AftercommitError, nameErrors } from './base.js'
import { InvalidSettingError } from './setup.js'

/** No consumer, started or manual, has registered a handler for the event within the last 7 days. */
export class UnroutableEventError extends AftercommitError {
  static {
    nameErrors(UnroutableEventError, 'UnroutableEventError')
  }

  readonly eventType: string

  constructor(eventType: string) {
    super(
      'UNROUTABLE_EVENT',
      `No consumer has registered a handler for ${quoteText(eventType)} within the last 7 days. Register one with outbox.on(), then retry the dead letter.`,
    )
    this.eventType = eventType
  }
}

/** The handler took longer than its own timeout. It counts as failed, whatever it does afterwards. */
export class HandlerTimeoutError extends AftercommitError {
  static {
    nameErrors(HandlerTimeoutError, 'HandlerTimeoutError')
  }

  readonly handler: string
  readonly timeoutMs: number

  constructor(handler: string, timeoutMs: number) {
    super(
      'HANDLER_TIMEOUT',
      `Handler ${quoteText(handler)} took longer than ${timeoutMs} ms. Make it stop on its AbortSignal, or raise its timeout.`,
    )
    this.handler = handler
    this.timeoutMs = timeoutMs
  }
}

/** Handler that is in the way of another registration. */
interface OtherHandler {
  readonly name: string
  readonly eventType: string
}

/**
 * The name of a handler is taken for the event, or one of two handlers of the event is exclusive. The call that was refused
 * registered nothing.
 */
export class HandlerExistsError extends AftercommitError {
  static {
    nameErrors(HandlerExistsError, 'HandlerExistsError')
  }

  readonly handler: string
  readonly eventType: string

  constructor(handler: string, eventType: string, other: OtherHandler, { exclusive = false } = {}) {
    const [refused, taken] = [quoteText(eventType), quoteText(other.eventType)]
    super(
      'HANDLER_EXISTS',
      exclusive
        ? `Handler ${quoteText(handler)} cannot be registered for ${refused}: handler ${quoteText(other.name)} is registered for ${taken}, and one of the two is exclusive. Remove one of the two handlers, or the option exclusive.`
        : `Handler ${quoteText(handler)} cannot be registered for ${refused}: a handler of this name is already registered for ${taken}. Choose another name, or remove one of the two registrations.`,
    )
    this.handler = handler
    this.eventType = eventType
  }
}

/** Recorded, not thrown: the stored row does not hold an event that can be handled. The message never shows the data. */
export class InvalidRowError extends AftercommitError {
  static {
    nameErrors(InvalidRowError, 'InvalidRowError')
  }

  /** Completes "This event cannot be handled: …". */
  readonly reason: string

  constructor(reason: string) {
    super(
      'INVALID_ROW',
      `This event cannot be handled: ${reason}. Correct the program that wrote the row, discard this event, and publish it again.`,
    )
    this.reason = reason
  }
}

/** Recorded, not thrown: the process that worked on the event died or lost its lease. It counts as an attempt. */
export class ProcessDiedError extends AftercommitError {
  static {
    nameErrors(ProcessDiedError, 'ProcessDiedError')
  }

  constructor(instance?: string) {
    const who = instance === undefined ? 'The process' : `Instance ${quoteText(instance)}`
    super(
      'PROCESS_DIED',
      `${who} stopped, or lost its lease, while it worked on this event. See its log for the crash.`,
    )
  }
}

/** A store keeps 4,000 characters of an error. The name of this error and the name of a relay need some of them. */
const MAX_MESSAGE = 3_700
const MAX_REASON = 500
/** A shorter text of an error would say nothing. Names without a text leave room for more names. */
const MIN_REASON = 10
const MAX_HANDLER_NAME = 255

interface HandlerError {
  /** Null for a failure outside of handlers, for example in an interceptor. */
  readonly handler: string | null
  readonly error: unknown
}

/**
 * Failure of at least one handler. The message names each failed handler with its error. Error texts are shortened so that
 * all names fit into the message. If even the names do not fit, the message ends with the number of the other failures.
 */
export class AggregateHandlerError extends AftercommitError {
  static {
    nameErrors(AggregateHandlerError, 'AggregateHandlerError')
  }

  /** Values that the handlers threw, in the order of registration. */
  readonly errors: readonly unknown[]

  constructor(failures: readonly HandlerError[], eventType?: string) {
    const whose = eventType === undefined ? '' : ` of ${quoteText(eventType)}`
    const who = failures.length === 1 ? '1 handler' : `${failures.length} handlers`
    const head = `${who}${whose} failed. `
    super('HANDLERS_FAILED', head + listFailures(failures, MAX_MESSAGE - head.length))
    this.errors = Object.freeze(failures.map(({ error }) => error))
  }
}

/** Lists failures in at most `max` characters: all names first, then as much of each error text as there is room for. */
function listFailures(failures: readonly HandlerError[], max: number): string {
  const labels = failures.map(({ handler }) => labelOf(handler))
  const forNames = labels.reduce((sum, label) => sum + label.length + SEPARATOR.length, 0)
  if (forNames + failures.length * MIN_REASON > max) return listNames(labels, max)
  const reasons = failures.map(({ error }) => reasonOf(error))
  const length = sharedLength(
    reasons.map((reason) => reason.length),
    max - forNames - failures.length * COLON.length,
  )
  return labels
    .map((label, at) => {
      const reason = shorten(reasons[at] as string, length)
      return failures[at]?.handler === null ? reason : label + COLON + reason
    })
    .join(SEPARATOR)
}

const SEPARATOR = '; '
const COLON = ': '

function labelOf(handler: string | null): string {
  return handler === null ? '(no handler)' : shorten(handler, MAX_HANDLER_NAME)
}

function reasonOf(error: unknown): string {
  const { name, message } = describeError(error)
  return shorten(`${name}: ${message}`, MAX_REASON)
}

/** Lists as many names as fit, and says how many there are besides. */
function listNames(labels: readonly string[], max: number): string {
  const room = max - `; and ${labels.length} more`.length
  const listed: string[] = []
  let used = 0
  for (const label of labels) {
    used += label.length + SEPARATOR.length
    if (used > room) break
    listed.push(label)
  }
  const more = labels.length - listed.length
  return more > 0 ? [...listed, `and ${more} more`].join(SEPARATOR) : listed.join(SEPARATOR)
}

/** The largest length to which all texts can be cut so that they fit into `room` together. Short texts leave room for others. */
function sharedLength(lengths: readonly number[], room: number): number {
  let left = room
  let count = lengths.length
  for (const length of [...lengths].sort((a, b) => a - b)) {
    const share = Math.floor(left / count)
    if (length > share) return share
    left -= length
    count--
  }
  return MAX_REASON
}

/** Cuts a text to `max` characters, the last of which is an ellipsis. */
function shorten(text: string, max: number): string {
  return text.length <= max ? sanitizeText(text, max) : `${sanitizeText(text, max - 1)}…`
}

/** Thrown by a handler that wants to be called again at a given time: no attempt is counted. */
export class RetryAfter extends AftercommitError {
  static {
    nameErrors(RetryAfter, 'RetryAfter')
  }

  readonly delayMs: number

  /** A moment that has passed means at once. Throws InvalidSettingError when it is no number of milliseconds. */
  constructor(delayMs: number, message?: string, options?: { cause?: unknown }) {
    if (!Number.isFinite(delayMs)) {
      throw new InvalidSettingError('RetryAfter', 'takes a number of milliseconds, for example 60_000')
    }
    const wait = Math.max(0, delayMs)
    super('RETRY_AFTER', message ?? `The handler asked to be called again in ${wait} ms.`, options)
    this.delayMs = wait
  }
}

/** Thrown by a handler that will never succeed: the event is dead at once. */
export class Unrecoverable extends AftercommitError {
  static {
    nameErrors(Unrecoverable, 'Unrecoverable')
  }

  constructor(message = 'The handler says that no retry can help.', options?: { cause?: unknown }) {
    super('UNRECOVERABLE', message, options)
  }
}

/** Recorded, not thrown: the others have succeeded, but the event had failed as often as this handler allows. */
export class HandlerGaveUpError extends AftercommitError {
  static {
    nameErrors(HandlerGaveUpError, 'HandlerGaveUpError')
  }

  readonly handler: string

  constructor(handler: string, failed: number, limit: number) {
    const times = failed === 1 ? 'once' : `${failed} times`
    super(
      'HANDLER_GAVE_UP',
      `Handler ${quoteText(handler)} gave up: the event has failed ${times}, this handler's limit is ${limit}.`,
    )
    this.handler = handler
  }
}

/** A batch handler returned what says nothing about its events. All of them count as failed. */
export class BatchResultError extends AftercommitError {
  static {
    nameErrors(BatchResultError, 'BatchResultError')
  }

  readonly handler: string

  /** `found` names places and kinds, never values. */
  constructor(handler: string, found: string) {
    super(
      'BATCH_RESULT',
      `Batch handler ${quoteText(handler)} ${found}. Return nothing, or for each event null, an Error, or its result of Promise.allSettled().`,
    )
    this.handler = handler
  }
}
