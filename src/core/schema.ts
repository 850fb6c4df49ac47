import { EventValidationError, UndecodablePayloadError } from './errors.js'
import type { StandardSchemaV1 } from './standard-schema.js'

/** What the schema makes of the value. Throws EventValidationError, or UndecodablePayloadError when it cannot run. */
export function applySchema(schema: StandardSchemaV1, value: unknown, eventType: string): unknown {
  const result = validate(schema, value, eventType)
  if (typeof result !== 'object' || result === null) {
    throw new UndecodablePayloadError(eventType, 'its schema returned no result')
  }
  if (result instanceof Promise || 'then' in result) {
    Promise.resolve(result).catch(() => {})
    throw new UndecodablePayloadError(
      eventType,
      'its schema is asynchronous: use synchronous checks, and do the rest before publishing or in the handler',
    )
  }
  if (result.issues !== undefined) throw new EventValidationError(eventType, result.issues)
  return result.value
}

function validate(schema: StandardSchemaV1, value: unknown, eventType: string) {
  try {
    return schema['~standard'].validate(value)
  } catch (thrown) {
    throw new UndecodablePayloadError(eventType, 'its schema threw an error', { thrown })
  }
}

/** Adds a hint when a failing path holds a Date: it travels as text, and the schema must take it back from text. */
export function explainValidation(error: EventValidationError, payload: unknown): EventValidationError {
  for (const issue of error.issues) {
    if (!(valueAt(payload, issue.path ?? []) instanceof Date)) continue
    const hint =
      'A Date travels as ISO-8601 text, so the schema must turn text into a Date: z.coerce.date() in zod, ' +
      'v.pipe(v.string(), v.toDate()) in valibot, "string.date.parse" in arktype.'
    return new EventValidationError(error.eventType, error.issues, hint)
  }
  return error
}

function valueAt(payload: unknown, path: readonly (PropertyKey | { readonly key: PropertyKey })[]): unknown {
  let value = payload
  try {
    for (const segment of path) {
      if (typeof value !== 'object' || value === null) return undefined
      value = Reflect.get(value, typeof segment === 'object' ? segment.key : segment)
    }
  } catch {
    return undefined
  }
  return value
}
