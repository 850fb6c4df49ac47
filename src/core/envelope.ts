import { checkHeaders, EMPTY_HEADERS, freezeHeaders, type Headers } from './checks.js'
import {
  type EnvelopeInit,
  type EnvelopeJson,
  fromEnvelopeJson,
  readInit,
  toEnvelopeJson,
  toStored,
} from './envelope-parts.js'
import { unreadableEvent } from './errors/event.js'
import { InvalidEventError, UndecodablePayloadError } from './errors.js'
import type { EventId } from './event-id.js'
import {
  createMetadata,
  type EventMetadata,
  type MetadataInput,
  mergeMetadata,
  trustedMetadata,
} from './metadata.js'
import { type EncodedPayload, encodePayload } from './payload.js'
import { deepFreeze, freezeParsed } from './plain.js'
import { INSPECT, inspectedAs, withoutData } from './redact.js'
import type { PayloadDecoder, StoredEvent } from './stored-event.js'

export { GLOBAL_AGGREGATE } from './envelope-parts.js'
export type { EnvelopeInit, EnvelopeJson }

/** Anything that decodes the payload of one event type; every EventDefinition does. */
export interface PayloadReader<T> {
  readonly eventType: string
  readonly decode: PayloadDecoder<T>
}

/**
 * An event as it travels. Deeply immutable: the payload is read from its serialised form, decoded at the first look
 * and frozen; bytes and dates are handed out as copies. It is a DomainEvent, so it can be published again.
 */
export class EventEnvelope<T = unknown> {
  readonly eventId: EventId
  readonly eventType: string
  readonly aggregateType: string
  readonly aggregateId: string | undefined
  /** Passed through, never interpreted. */
  readonly tenantId: string | undefined
  readonly occurredAtMs: number
  /** The version of the payload's schema. */
  readonly version: number
  readonly headers: Headers
  readonly metadata: EventMetadata
  readonly orderingKey: string | undefined
  /** The payload's JSON text, as it is stored; null when the payload is bytes. */
  readonly payloadText: string | null
  /** Bytes of the payload once serialised. */
  readonly payloadSize: number

  readonly #bytes: Uint8Array | null
  readonly #decode: PayloadDecoder | undefined
  #payload: unknown
  #isDecoded = false

  private constructor(stored: StoredEvent, decode: PayloadDecoder | undefined) {
    this.eventId = stored.eventId as EventId
    this.eventType = stored.eventType
    this.aggregateType = stored.aggregateType
    this.aggregateId = stored.aggregateId ?? undefined
    this.tenantId = stored.tenantId ?? undefined
    this.occurredAtMs = stored.occurredAtMs
    this.version = stored.version
    this.headers = stored.headers === EMPTY_HEADERS ? EMPTY_HEADERS : freezeHeaders(stored.headers)
    this.metadata = trustedMetadata(stored.metadata)
    this.orderingKey = stored.orderingKey ?? undefined
    this.payloadText = stored.payloadText
    this.payloadSize = stored.payloadSize
    this.#bytes = stored.payloadBytes
    this.#decode = decode
    Object.freeze(this)
  }

  /** Validates and serialises; throws InvalidEventError, InvalidPayloadError or PayloadTooLargeError. */
  static create<T = unknown>(init: EnvelopeInit<T>): EventEnvelope<T> {
    try {
      const { fields, value } = readInit(init)
      return EventEnvelope.fromEncoded<T>(fields, encodePayload({ value }, 'json'))
    } catch (error) {
      throw unreadableEvent(error)
    }
  }

  /** Whether the value is an envelope that this class has made, and not just an object with its prototype. */
  static isEnvelope(value: unknown): value is EventEnvelope {
    return typeof value === 'object' && value !== null && #bytes in value
  }

  /** For rows of a store: nothing is checked or copied. Bad payloads show when they are read, or in decodePayload(). */
  static fromStored<T = unknown>(fields: StoredEvent, decode?: PayloadDecoder): EventEnvelope<T> {
    return new EventEnvelope<T>(fields, decode)
  }

  /** Validates the fields around a payload that is serialised already; `decoded`, when given, is its decoded form. */
  static fromEncoded<T>(
    init: EnvelopeInit,
    encoded: EncodedPayload,
    decode?: PayloadDecoder,
    decoded?: { readonly value: unknown },
  ): EventEnvelope<T> {
    const envelope = new EventEnvelope<T>(toStored(init, encoded), decode)
    if (decoded !== undefined) envelope.#keep(decoded.value)
    return envelope
  }

  /** The reverse of toJSON(). Everything is validated; the payload is plain JSON until a definition decodes it. */
  static fromJSON(json: string | object): EventEnvelope {
    try {
      const { init, content } = fromEnvelopeJson(json)
      return EventEnvelope.fromEncoded(init, encodePayload(content, 'json'))
    } catch (error) {
      throw unreadableEvent(error)
    }
  }

  /** A fresh copy each time, since a Date cannot be frozen. */
  get occurredAt(): Date {
    return new Date(this.occurredAtMs)
  }

  /** Decoded when first read, then kept and frozen; throws what decodePayload() throws. Bytes: a copy each time. */
  get payload(): T {
    this.decodePayload()
    return (this.#bytes === null ? this.#payload : new Uint8Array(this.#bytes)) as T
  }

  /** A copy, since a Uint8Array cannot be frozen; null when the payload is JSON. */
  get payloadBytes(): Uint8Array | null {
    return this.#bytes === null ? null : new Uint8Array(this.#bytes)
  }

  /** Throws UndecodablePayloadError or EventValidationError when the payload cannot be read; otherwise does nothing. */
  decodePayload(): void {
    if (this.#isDecoded) return
    if (this.#bytes === null) this.#keepDecoded()
    else if (this.#decode?.textOnly)
      throw new UndecodablePayloadError(this.eventType, 'it is bytes, and its schema wants JSON')
  }

  /** The payload as this definition decodes it, frozen. A definition of another type throws InvalidEventError. */
  payloadAs<U>(definition: PayloadReader<U>): U {
    if (definition.eventType !== this.eventType) {
      throw new InvalidEventError('eventType', 'payloadAs() was given the definition of another event type', {
        eventType: this.eventType,
      })
    }
    return this.withDecoder<U>(definition.decode).payload
  }

  /** The same event, with the payload decoded by this decoder from now on. */
  withDecoder<U = unknown>(decode: PayloadDecoder): EventEnvelope<U> {
    if (decode === this.#decode) return this as EventEnvelope<unknown> as EventEnvelope<U>
    return new EventEnvelope<U>(this.#stored(), decode)
  }

  withCorrelationId(correlationId: string): EventEnvelope<T> {
    return this.withMetadata({ correlationId })
  }

  withCausationId(causationId: string): EventEnvelope<T> {
    return this.withMetadata({ causationId })
  }

  withUserId(userId: string): EventEnvelope<T> {
    return this.withMetadata({ userId })
  }

  withTraceId(traceId: string): EventEnvelope<T> {
    return this.withMetadata({ traceId })
  }

  /** A copy in which these fields, unless undefined, take the place of the old ones. */
  withMetadata(changes: MetadataInput): EventEnvelope<T> {
    return this.#withMetadata(createMetadata(changes))
  }

  withHeader(name: string, value: string): EventEnvelope<T> {
    return this.#copy({ headers: checkHeaders({ ...this.headers, [name]: value }, this.eventType) })
  }

  /** Continues the parent's story: its correlation id (or its id) unless there is one, and its id as the cause. */
  causedBy(parent: EventEnvelope): EventEnvelope<T> {
    return this.#withMetadata({
      correlationId: this.metadata.correlationId ?? parent.metadata.correlationId ?? parent.eventId,
      causationId: parent.eventId,
    })
  }

  toEnvelope(): this {
    return this
  }

  /** Everything, without loss: the payload as plain JSON (not as decoded by a schema), or as `payloadBase64`. */
  toJSON(): EnvelopeJson {
    return toEnvelopeJson(this, this.#bytes ?? { value: this.#decodeText(undefined) })
  }

  /** Lets `console.log` print the event without payload, header values and user id. */
  [INSPECT](
    _depth: number,
    options: unknown,
    inspect?: (value: unknown, options: unknown) => string,
  ): unknown {
    const fieldsOf = () => {
      const { eventId, eventType, aggregateType, aggregateId, tenantId, version, orderingKey } = this
      const ids = { eventId, eventType, aggregateType, aggregateId, tenantId, version, orderingKey }
      // Not `payloadBytes`: its getter reads a private member, which a proxy of the envelope does not have.
      const { headers, metadata, payloadSize, occurredAt } = this
      return { ...withoutData({ ...ids, headers, metadata, payloadSize, payloadText: null }), occurredAt }
    }
    return inspectedAs('EventEnvelope', fieldsOf, options, inspect)
  }

  #withMetadata(changes: MetadataInput): EventEnvelope<T> {
    return this.#copy({ metadata: mergeMetadata(this.metadata, changes) })
  }

  #keep(payload: unknown): void {
    this.#payload = deepFreeze(payload)
    this.#isDecoded = true
  }

  #keepDecoded(): void {
    const payload = this.#decodeText(this.#decode)
    // A decoder may hand out what it shares with others.
    this.#payload = this.#decode === undefined ? freezeParsed(payload) : deepFreeze(payload)
    this.#isDecoded = true
  }

  #decodeText(decode: PayloadDecoder | undefined): unknown {
    const text = this.payloadText
    if (text === null) throw new UndecodablePayloadError(this.eventType, 'the row holds no payload')
    if (decode !== undefined) return decode(text, this.version)
    try {
      return JSON.parse(text)
    } catch {
      // Without the cause: its message quotes the payload.
      throw new UndecodablePayloadError(this.eventType, 'it is not valid JSON')
    }
  }

  #copy(changes: Pick<Partial<StoredEvent>, 'headers' | 'metadata'>): EventEnvelope<T> {
    const copy = new EventEnvelope<T>(this.#stored(changes), this.#decode)
    copy.#payload = this.#payload
    copy.#isDecoded = this.#isDecoded
    return copy
  }

  #stored(changes: Pick<Partial<StoredEvent>, 'headers' | 'metadata'> = {}): StoredEvent {
    return {
      eventId: this.eventId,
      eventType: this.eventType,
      aggregateType: this.aggregateType,
      aggregateId: this.aggregateId ?? null,
      tenantId: this.tenantId ?? null,
      orderingKey: this.orderingKey ?? null,
      version: this.version,
      payloadText: this.payloadText,
      payloadBytes: this.#bytes,
      headers: changes.headers ?? this.headers,
      metadata: changes.metadata ?? this.metadata,
      occurredAtMs: this.occurredAtMs,
      payloadSize: this.payloadSize,
    }
  }
}
