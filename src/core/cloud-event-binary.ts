import { type CloudEventOptions, fromAttributes, toAttributes } from './cloud-event.js'
import type { EventEnvelope } from './envelope.js'
import { unreadableEvent } from './errors/event.js'
import { InvalidEventError } from './errors.js'
import type { PayloadContent } from './payload.js'

/** Binary mode over HTTP: the attributes are `ce-` headers, the body is the payload alone. */
export interface CloudEventMessage {
  readonly headers: Readonly<Record<string, string>>
  readonly body: Uint8Array
}

/** Headers as HTTP servers hand them over; names in any case. */
export interface IncomingCloudEvent {
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>
  readonly body: Uint8Array
}

/** Binary mode. fromCloudEventBinary() gives an equal envelope back, with the very same payload text or bytes. */
export function toCloudEventBinary(
  envelope: EventEnvelope,
  options: CloudEventOptions = {},
): CloudEventMessage {
  const { datacontenttype, ...attributes } = toAttributes(envelope, options)
  const headers: Record<string, string> = { 'content-type': String(datacontenttype) }
  for (const [name, value] of Object.entries(attributes)) headers[`ce-${name}`] = percentEncode(String(value))
  return { headers, body: envelope.payloadBytes ?? new TextEncoder().encode(envelope.payloadText ?? '') }
}

/** Reads binary mode, also from other producers. JSON content types become JSON, all others bytes. */
export function fromCloudEventBinary(message: IncomingCloudEvent): EventEnvelope {
  try {
    return fromMessage(message)
  } catch (error) {
    throw unreadableEvent(error)
  }
}

function fromMessage(message: IncomingCloudEvent): EventEnvelope {
  const attributes: Record<string, string> = Object.create(null)
  let contentType = 'application/json'
  for (const [name, value] of Object.entries(message.headers)) {
    const text = typeof value === 'string' ? value : value?.[0]
    const lower = name.toLowerCase()
    if (text === undefined) continue
    if (lower === 'content-type') contentType = text
    else if (lower.startsWith('ce-')) attributes[lower.slice(3)] = percentDecode(lower, text)
  }
  return fromAttributes(attributes, binaryContent(contentType, message.body))
}

/** JSON content types are JSON, all others bytes. */
export function binaryContent(contentType: string, body: Uint8Array): PayloadContent {
  const mediaType = (contentType.split(';')[0] as string).trim().toLowerCase()
  if (mediaType !== 'application/json' && !mediaType.endsWith('+json')) return { value: new Uint8Array(body) }
  if (body.byteLength === 0) return { value: null }
  try {
    return { json: new TextDecoder('utf-8', { fatal: true }).decode(body) }
  } catch {
    throw new InvalidEventError('body', 'it is not UTF-8 text')
  }
}

/** Space, quote, percent and everything outside printable ASCII, as the HTTP binding says. */
function percentEncode(text: string): string {
  return text.replace(/[^!#$&-~]+/g, (run) => {
    let encoded = ''
    for (const byte of new TextEncoder().encode(run)) {
      encoded += `%${byte.toString(16).toUpperCase().padStart(2, '0')}`
    }
    return encoded
  })
}

/** A quoted value is unquoted first. Percent signs that encode nothing are refused. */
function percentDecode(name: string, text: string): string {
  const trimmed = text.trim()
  const isQuoted = trimmed.length > 1 && trimmed.startsWith('"') && trimmed.endsWith('"')
  const unquoted = isQuoted ? trimmed.slice(1, -1).replace(/\\(.)/g, '$1') : trimmed
  try {
    return decodeURIComponent(unquoted)
  } catch {
    throw new InvalidEventError(name, 'its percent-encoding is broken')
  }
}
