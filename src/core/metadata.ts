import { checkMetadataText } from './checks.js'
import { unreadableEvent } from './errors/event.js'
import { InvalidEventError } from './errors.js'
import { refusedOptions } from './plain.js'
import { INSPECT, inspectedAs, LOGGED, withoutUser } from './redact.js'
import { rejectUnknownKeys } from './reject-unknown-keys.js'

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
const KNOWN = { of: 'metadata', kind: 'field', names: new Set<string>(METADATA_FIELDS) } as const

class Metadata implements EventMetadata {
  static is(value: unknown): value is Metadata {
    return typeof value === 'object' && value !== null && #checked in value
  }

  /** Only the constructor sets the mark: an object that merely has this prototype was not checked. */
  readonly #checked = true
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
    return inspectedAs('', () => withoutUser(this), options, inspect)
  }

  [LOGGED](): EventMetadata {
    return withoutUser(this)
  }
}

/** No metadata: frozen and shared. */
export const EMPTY_METADATA: EventMetadata = Object.freeze(new Metadata())

/**
 * Returns a frozen copy of the fields, without those that are undefined. Each field is read only once. Throws
 * InvalidEventError for unknown fields, and for anything but clean text.
 */
export function createMetadata(input?: MetadataInput): EventMetadata {
  if (input === undefined) return EMPTY_METADATA
  try {
    return checkedMetadata(input)
  } catch (error) {
    throw unreadableEvent(error)
  }
}

function checkedMetadata(input: MetadataInput): EventMetadata {
  if (typeof input !== 'object' || input === null || Array.isArray(input)) throw notMetadata()
  if (Metadata.is(input)) return input
  // No names: empty metadata of another copy of this library are an instance of a class without fields.
  const refused = refusedOptions(input)
  if (refused !== undefined) throw notMetadata(`, not ${refused}`)
  rejectUnknownKeys(input, KNOWN, (name, reason) => new InvalidEventError(`metadata.${name}`, reason))
  return copyFields(input, checkMetadataText)
}

/** As createMetadata(), for data of other programs: fields that this version does not know are left out. */
export function readMetadata(input: unknown): EventMetadata {
  if (input === undefined) return EMPTY_METADATA
  if (typeof input !== 'object' || input === null || Array.isArray(input)) throw notMetadata()
  return copyFields(input, checkMetadataText)
}

function notMetadata(what = ''): InvalidEventError {
  return new InvalidEventError('metadata', `it must be an object${what}`)
}

/** As createMetadata, for values that were checked when they were stored: what is not a string is left out. */
export function trustedMetadata(input: EventMetadata | null): EventMetadata {
  if (input === null) return EMPTY_METADATA
  return Metadata.is(input) ? input : copyFields(input, (_field, value) => value)
}

/** A copy in which the given fields, unless undefined, take the place of the old ones. */
export function mergeMetadata(
  base: EventMetadata | MetadataInput | undefined,
  changes: MetadataInput,
): EventMetadata {
  let merged: Record<string, unknown> | undefined
  for (const field of METADATA_FIELDS) {
    const change = changes[field]
    if (change === undefined) continue
    merged ??= { ...createMetadata(base) }
    merged[field] = change
  }
  return createMetadata(merged ?? base)
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
