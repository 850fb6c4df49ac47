import { fromAttributes, toAttributes } from '../core/cloud-event.js'
import { binaryContent } from '../core/cloud-event-binary.js'
import type { EventEnvelope } from '../core/envelope.js'
import type { IncomingMessage, OutgoingMessage } from './transport.js'

const encoder = new TextEncoder()

export function messageOf(event: EventEnvelope, source: string | undefined): OutgoingMessage {
  const { datacontenttype, ...attributes } = toAttributes(event, { source })
  attributes.schemaversion = String(attributes.schemaversion)
  return {
    id: event.eventId,
    type: event.eventType,
    key: event.orderingKey,
    contentType: String(datacontenttype),
    attributes: attributes as Record<string, string>,
    body: event.payloadBytes ?? encoder.encode(event.payloadText ?? ''),
  }
}

/** Checks everything, since anybody can write to a broker; throws InvalidEventError and the like. */
export function eventOf({ attributes, contentType, body }: IncomingMessage): EventEnvelope {
  return fromAttributes(attributes, binaryContent(contentType, body))
}
