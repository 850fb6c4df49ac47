import { PayloadTooLargeError } from './errors.js'
import { checkJsonText } from './json-text.js'
import { MAX_PAYLOAD_BYTES, utf8Length } from './payload-limits.js'
import { type SerializeMode, serializeAndCopy, serializeJson } from './serialize.js'

/** A payload as it is written: JSON text or bytes, never both, and its size in bytes. */
export interface EncodedPayload {
  readonly text: string | null
  readonly bytes: Uint8Array | null
  readonly size: number
  /** What a reader of the text gets, frozen; only where it was asked for. */
  readonly copy?: { readonly value: unknown } | undefined
}

/**
 * What a caller hands over: a value, or JSON text that is serialised already. `isReadSoon`: in this process, so that it
 * is worth while to copy the value as it is written instead of parsing the text.
 */
export type PayloadContent =
  | { readonly value: unknown; readonly isReadSoon?: boolean }
  | { readonly json: string }

/** Serialises once. A Uint8Array at the top is copied as bytes, unless there is a schema. Throws when it is bad. */
export function encodePayload(content: PayloadContent, mode: SerializeMode): EncodedPayload {
  if ('json' in content) return textPayload(checkJsonText(content.json))
  const value = content.value
  if (mode === 'json' && value instanceof Uint8Array) return bytesPayload(value)
  if (mode === 'schema' || !content.isReadSoon) return textPayload(serializeJson(value, mode))
  const { text, copy } = serializeAndCopy(value)
  return textPayload(text, { value: copy })
}

function textPayload(text: string, copy?: EncodedPayload['copy']): EncodedPayload {
  return { text, bytes: null, size: utf8Length(text), copy }
}

function bytesPayload(bytes: Uint8Array): EncodedPayload {
  if (bytes.byteLength > MAX_PAYLOAD_BYTES) throw new PayloadTooLargeError(MAX_PAYLOAD_BYTES)
  return { text: null, bytes: new Uint8Array(bytes), size: bytes.byteLength, copy: undefined }
}
