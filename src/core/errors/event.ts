import { formatPath, type PathSegment } from '../path.js'
import { quoteText } from '../text.js'
import { isA } from '../unknown.js'
import { AftercommitError, hideProperty, keepThrown, nameErrors, seeThrown, type WithThrown } from './base.js'

/** The id is empty, longer than 64 characters, or holds control characters or half a surrogate pair. */
export class InvalidEventIdError extends AftercommitError {
  static {
    nameErrors(InvalidEventIdError, 'InvalidEventIdError')
  }

  constructor(reason: string) {
    super(
      'INVALID_EVENT_ID',
      `Invalid event id: it ${reason}. Give 1 to 64 characters of plain text, or leave it out and one is made.`,
    )
  }
}

/** A field of the envelope (type, aggregate, tenant, ordering key, version, header, metadata) is not acceptable. */
export class InvalidEventError extends AftercommitError {
  static {
    nameErrors(InvalidEventError, 'InvalidEventError')
  }

  readonly field: string
  /** What a function of the definition threw. */
  declare readonly thrown?: unknown

  constructor(field: string, reason: string, options: { eventType?: string } & WithThrown = {}) {
    const whose = options.eventType === undefined ? '' : ` of event ${quoteText(options.eventType)}`
    super('INVALID_EVENT', `Invalid ${field}${whose}: ${reason}.${seeThrown(options)}`)
    this.field = field
    keepThrown(this, options)
  }
}

/** Returns the error for a value that was thrown while an event of the caller was read. Errors of this library stay. */
export function unreadableEvent(thrown: unknown, eventType?: string): AftercommitError {
  if (isA(thrown, AftercommitError)) return thrown
  const options = eventType === undefined ? { thrown } : { thrown, eventType }
  return new InvalidEventError('event', 'reading it threw an error', options)
}

/** The payload holds a value that JSON cannot carry. `path` names where; the value itself is never shown. */
export class InvalidPayloadError extends AftercommitError {
  static {
    nameErrors(InvalidPayloadError, 'InvalidPayloadError')
  }

  readonly path: string
  readonly reason: string
  /** What a `toJSON` or a getter of the payload threw. */
  declare readonly thrown?: unknown

  constructor(path: string, reason: string, options: WithThrown = {}) {
    super('INVALID_PAYLOAD', `Invalid payload at ${path}: ${reason}.${seeThrown(options)}`)
    this.path = path
    this.reason = reason
    keepThrown(this, options)
  }
}

/** The serialised payload is larger than the limit. */
export class PayloadTooLargeError extends AftercommitError {
  static {
    nameErrors(PayloadTooLargeError, 'PayloadTooLargeError')
  }

  readonly limit: number

  constructor(limit: number) {
    super(
      'PAYLOAD_TOO_LARGE',
      `The payload is larger than ${limit} bytes once serialised. Store the data elsewhere and publish a reference to it.`,
    )
    this.limit = limit
  }
}

/** The events of one publishAll() call are larger than the limit in total. Nothing was written. */
export class BatchTooLargeError extends AftercommitError {
  static {
    nameErrors(BatchTooLargeError, 'BatchTooLargeError')
  }

  readonly limit: number

  constructor(limit: number) {
    super(
      'BATCH_TOO_LARGE',
      `The events of one publishAll() call are larger than ${limit} bytes in total. Publish them with several calls in one transaction, which is all or nothing as well.`,
    )
    this.limit = limit
  }
}

/** What a schema said; the messages may quote the payload, so they stay out of the error's own message. */
export interface ValidationIssue {
  readonly message: string
  readonly path?: readonly PathSegment[] | undefined
}

/** The payload does not fit its schema. The message names paths only; `issues` is not enumerable, so it is not logged. */
export class EventValidationError extends AftercommitError {
  static {
    nameErrors(EventValidationError, 'EventValidationError')
  }

  readonly eventType: string
  readonly paths: readonly string[]
  declare readonly issues: readonly ValidationIssue[]

  constructor(eventType: string, issues: readonly ValidationIssue[], hint?: string) {
    const paths = [...new Set(issues.map((issue) => formatPath(issue.path ?? [])))]
    const more = paths.length > 10 ? ` and ${paths.length - 10} more` : ''
    super(
      'EVENT_VALIDATION',
      `The payload of ${quoteText(eventType)} does not match its schema at ${paths.slice(0, 10).join(', ')}${more}.` +
        ` ${hint ?? "See the error's `issues` for what the schema expects (they may quote the payload)."}`,
    )
    this.eventType = eventType
    this.paths = paths
    hideProperty(this, 'issues', issues)
  }
}

/** A stored payload cannot be turned into a value again. The message never shows the data. */
export class UndecodablePayloadError extends AftercommitError {
  static {
    nameErrors(UndecodablePayloadError, 'UndecodablePayloadError')
  }

  readonly eventType: string
  /** What the schema or `upcast` threw. */
  declare readonly thrown?: unknown

  constructor(eventType: string, reason: string, options: WithThrown = {}) {
    super(
      'UNDECODABLE_PAYLOAD',
      `The payload of ${quoteText(eventType)} cannot be decoded: ${reason}.${seeThrown(options)}`,
    )
    this.eventType = eventType
    keepThrown(this, options)
  }
}

/** The catalog has no definition of this type. */
export class UnknownEventTypeError extends AftercommitError {
  static {
    nameErrors(UnknownEventTypeError, 'UnknownEventTypeError')
  }

  readonly eventType: string

  constructor(eventType: string) {
    super(
      'UNKNOWN_EVENT_TYPE',
      `Unknown event type ${quoteText(eventType)}. Add its definition to the catalog (the outbox's \`events\`), or check the spelling.`,
    )
    this.eventType = eventType
  }
}

/** Two different definitions claim one event type. */
export class DuplicateDefinitionError extends AftercommitError {
  static {
    nameErrors(DuplicateDefinitionError, 'DuplicateDefinitionError')
  }

  readonly eventType: string

  constructor(eventType: string) {
    super(
      'DUPLICATE_DEFINITION',
      `Event type ${quoteText(eventType)} is defined twice. Define it once and import that definition everywhere.`,
    )
    this.eventType = eventType
  }
}

/** An event with this id is in the outbox already. Nothing was written; the caller's transaction is still usable. */
export class DuplicateEventError extends AftercommitError {
  static {
    nameErrors(DuplicateEventError, 'DuplicateEventError')
  }

  readonly eventIds: readonly string[]

  constructor(eventIds: readonly string[]) {
    const shown = eventIds.slice(0, 5).map((id) => quoteText(id))
    const more = eventIds.length > 5 ? ` and ${eventIds.length - 5} more` : ''
    super(
      'DUPLICATE_EVENT',
      `Already in the outbox: ${shown.join(', ')}${more}. Use new ids, or publish with { onDuplicate: 'ignore' }.`,
    )
    this.eventIds = Object.freeze([...eventIds])
  }
}
