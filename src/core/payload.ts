import { PayloadTooLargeError } from './errors.js'
import { checkJsonText } from './json-text.js'
import { MAX_PAYLOAD_BYTES, utf8Length } from './payload-limits.js'
import { copyJson, type JsonCopy, type SerializeMode } from './serialize.js'

/** A payload as it is written: JSON text or bytes, never both, and its size in bytes. */
export interface EncodedPayload {
  readonly text: string | null
  readonly bytes: Uint8Array | null
  readonly size: number
  /** What a reader of the text gets. Only of small JSON values: of others the text takes far less room. */
  readonly copy: { readonly value: unknown } | undefined
}

const SMALL_LENGTH = 2_048
const FEW_CONTAINERS = 16

/** What a caller hands over: a value, or JSON text that is serialised already. */
export type PayloadContent = { readonly value: unknown } | { readonly json: string }

/** Serialises once. A Uint8Array at the top is copied as bytes, unless there is a schema. Throws when it is bad. */
export function encodePayload(content: PayloadContent, mode: SerializeMode): EncodedPayload {
  if ('json' in content) return textPayload(checkJsonText(content.json))
  const value = content.value
  if (mode === 'json' && value instanceof Uint8Array) return bytesPayload(value)
  const copy = copyJson(value, mode)
  return textPayload(copy.text, mode === 'json' && isSmall(copy) ? copy : undefined)
}

function isSmall({ text, containers }: JsonCopy): boolean {
  return text.length <= SMALL_LENGTH && containers <= FEW_CONTAINERS
}

function textPayload(text: string, copy?: JsonCopy): EncodedPayload {
  return { text, bytes: null, size: utf8Length(text), copy }
}

function bytesPayload(bytes: Uint8Array): EncodedPayload {
  if (bytes.byteLength > MAX_PAYLOAD_BYTES) throw new PayloadTooLargeError(MAX_PAYLOAD_BYTES)
  return { text: null, bytes: new Uint8Array(bytes), size: bytes.byteLength, copy: undefined }
}
