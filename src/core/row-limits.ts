import { MAX_PAYLOAD_BYTES } from './payload-limits.js'

/** Largest payload, headers, metadata or handler list that a store loads, in bytes as stored. */
export const MAX_COLUMN_BYTES = MAX_PAYLOAD_BYTES
/** Longest event type, aggregate, tenant or ordering key that a store loads completely, in bytes of UTF-8. */
export const MAX_NAME_BYTES = 4 * 255
/** Characters that a store loads of a longer name: one more than any valid name has. */
export const CUT_NAME_LENGTH = 256

/** Whether a store has cut this name because it is too long. */
export function isCutName(name: unknown): boolean {
  return typeof name === 'string' && name.length >= CUT_NAME_LENGTH && [...name].length >= CUT_NAME_LENGTH
}

const NAMES: readonly string[] = ['event_type', 'aggregate_type', 'aggregate_id', 'tenant_id', 'ordering_key']

/** Reason why a row cannot be handled, from the names of its columns that are too large to be loaded. */
export function tooLarge(columns: readonly string[]): string {
  const parts = columns.map((column) =>
    NAMES.includes(column)
      ? `its ${column} is longer than 255 characters`
      : `its ${column} is larger than ${MAX_COLUMN_BYTES} bytes`,
  )
  return parts.join(', ')
}
