import { checkMetadataText } from './checks.js'
import { InvalidEventError } from './errors.js'

/** Where an event comes from. `userId` is redacted when printed; the property and JSON hold the raw value. */
export interface EventMetadata {
  readonly correlationId?: string
  readonly causationId?: string
  readonly userId?: string
  readonly traceId?: string
  /** W3C trace context of the publisher. */
  readonly traceparent?: string
  readonly tracestate?: string
}

/** Metadata as callers may write it: `undefined` is the same as absent. */
export type MetadataInput = { readonly [Key in keyof EventMetadata]?: string | undefined }

/** Fields that are kept of an event's metadata. */
export const METADATA_FIELDS = [
  'correlationId',
  'causationId',
  'userId',
  'traceId',
  'traceparent',
  'tracestate',
] as const
const INSPECT = Symbol.for('nodejs.util.inspect.custom')

class Metadata implements EventMetadata {
  declare readonly correlationId?: string
  declare readonly causationId?: string
  declare readonly userId?: string
  declare readonly traceId?: string
  declare readonly traceparent?: string
  declare readonly tracestate?: string;

  [INSPECT](
    _depth: number,
    options: unknown,
    inspect?: (value: unknown, options: unknown) => string,
  ): unknown {
    const shown = redacted(this)
    return inspect === undefined ? shown : inspect(shown, options)
  }
}

/** No metadata: frozen and shared. */
export const EMPTY_METADATA: EventMetadata = Object.freeze(new Metadata())

/** A frozen copy of the known fields, without the undefined ones. Anything but clean text throws InvalidEventError. */
export function createMetadata(input?: MetadataInput): EventMetadata {
  if (input === undefined) return EMPTY_METADATA
  if (input instanceof Metadata) return input
  if (typeof input !== 'object' || input === null || Array.isArray(input))
    throw new InvalidEventError('metadata', 'it must be an object')
  return copyFields(input, checkMetadataText)
}

/** As createMetadata, for values that were checked when they were stored: what is not a string is left out. */
export function trustedMetadata(input: EventMetadata | null): EventMetadata {
  if (input === null) return EMPTY_METADATA
  return input instanceof Metadata ? input : copyFields(input, (_field, value) => value)
}

/** A copy in which the given fields, unless undefined, take the place of the old ones. */
export function mergeMetadata(
  base: EventMetadata | MetadataInput | undefined,
  changes: MetadataInput,
): EventMetadata {
  let merged: Record<string, unknown> | undefined
  for (const field of METADATA_FIELDS) {
    if (changes[field] === undefined) continue
    merged ??= { ...base }
    merged[field] = changes[field]
  }
  return createMetadata(merged ?? base)
}

export function isMetadata(value: object): value is EventMetadata {
  return value instanceof Metadata
}

/** A plain copy that may be printed. */
export function redacted(metadata: EventMetadata): EventMetadata {
  return metadata.userId === undefined ? { ...metadata } : { ...metadata, userId: '[redacted]' }
}

function copyFields(input: MetadataInput, check: (field: string, value: string) => string): EventMetadata {
  const copy: { -readonly [Key in keyof EventMetadata]: string } = new Metadata()
  let isEmpty = true
  for (const field of METADATA_FIELDS) {
    const value = input[field]
    if (value === undefined || value === null) continue
    copy[field] = check(field, value)
    isEmpty = false
  }
  return isEmpty ? EMPTY_METADATA : Object.freeze(copy)
}
