import type { IncomingMessage, OutgoingMessage } from '../bus.js'
import { contentTypeOf, fromAttributes, toTextAttributes } from '../core/cloud-event.js'
import { binaryContent } from '../core/cloud-event-binary.js'
import type { EventEnvelope } from '../core/envelope.js'
import { InvalidEventError } from '../core/errors.js'

/** The latest time that a Date can hold, in milliseconds since 1970. */
const LATEST_MS = 8.64e15

/**
 * Converts an event to a message. Throws InvalidEventError if the stored time is not a valid date or a stored value is not text,
 * because the clients of some brokers would then fail for all messages of the batch.
 */
export function messageOf(event: EventEnvelope, source: string | undefined): OutgoingMessage {
  const text = event.payloadText
  if (!(Math.abs(event.occurredAtMs) <= LATEST_MS)) {
    throw new InvalidEventError('occurredAt', 'it must be a valid date', { eventType: event.eventType })
  }
  const attributes = toTextAttributes(event, source)
  for (const name in attributes) {
    const type = typeof attributes[name]
    if (type !== 'string') throw new InvalidEventError(name, `it must be a string, not ${type}`)
  }
  return {
    id: event.eventId,
    type: event.eventType,
    key: event.orderingKey,
    contentType: contentTypeOf(event),
    attributes,
    body: text === null ? (event.payloadBytes ?? new Uint8Array()) : Buffer.from(text),
  }
}

/** Returns a Buffer that shares the memory of the bytes. */
export function bufferOf(bytes: Uint8Array): Buffer {
  return Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}

/** Converts a message to an event. Validates every field, because other programs write to the broker. Throws InvalidEventError and other errors. */
export function eventOf({ attributes, contentType, body }: IncomingMessage): EventEnvelope {
  return fromAttributes(attributes, binaryContent(contentType, body))
}
