import { contentTypeOf, fromAttributes, toTextAttributes } from '../core/cloud-event.js'
import { binaryContent } from '../core/cloud-event-binary.js'
import type { EventEnvelope } from '../core/envelope.js'
import type { IncomingMessage, OutgoingMessage } from './transport.js'

export function messageOf(event: EventEnvelope, source: string | undefined): OutgoingMessage {
  const text = event.payloadText
  return {
    id: event.eventId,
    type: event.eventType,
    key: event.orderingKey,
    contentType: contentTypeOf(event),
    attributes: toTextAttributes(event, source),
    body: text === null ? (event.payloadBytes ?? new Uint8Array()) : Buffer.from(text),
  }
}

/** The same bytes, not a copy. */
export function bufferOf(bytes: Uint8Array): Buffer {
  return Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}

/** Checks everything, since anybody can write to a broker; throws InvalidEventError and the like. */
export function eventOf({ attributes, contentType, body }: IncomingMessage): EventEnvelope {
  return fromAttributes(attributes, binaryContent(contentType, body))
}
