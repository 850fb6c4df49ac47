import { InvalidPayloadError, PayloadTooLargeError } from './errors.js'
import { checkJsonText } from './json-text.js'
import { MAX_PAYLOAD_BYTES, utf8Length } from './payload-limits.js'
import { byteLengthOf, isBytes } from './plain.js'
import { type SerializeMode, serializeJson } from './serialize.js'

/** A payload as it is written: JSON text or bytes, never both, and its size in bytes. */
export interface EncodedPayload {
  readonly text: string | null
  readonly bytes: Uint8Array | null
  readonly size: number
}

/** What a caller hands over: a value, or JSON text that is serialised already. */
export type PayloadContent = { readonly value: unknown } | { readonly json: string }

/** Serialises once. A Uint8Array at the top is copied as bytes, unless there is a schema. Throws when it is bad. */
export function encodePayload(content: PayloadContent, mode: SerializeMode): EncodedPayload {
  if ('json' in content) return textPayload(checkJsonText(content.json))
  const value = content.value
  if (mode === 'json' && isBytes(value)) return bytesPayload(value)
  return textPayload(serializeJson(value, mode))
}

function textPayload(text: string): EncodedPayload {
  return { text, bytes: null, size: utf8Length(text) }
}

function bytesPayload(bytes: Uint8Array): EncodedPayload {
  if (byteLengthOf(bytes) > MAX_PAYLOAD_BYTES) throw new PayloadTooLargeError(MAX_PAYLOAD_BYTES)
  const copy = copyOf(bytes)
  return { text: null, bytes: copy, size: copy.byteLength }
}

function copyOf(bytes: Uint8Array): Uint8Array {
  try {
    return new Uint8Array(bytes)
  } catch (thrown) {
    throw new InvalidPayloadError('$', 'the bytes cannot be read: their buffer was transferred', { thrown })
  }
}
