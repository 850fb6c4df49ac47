import { AftercommitError, EventValidationError, UndecodablePayloadError } from './errors.js'
import type { StandardSchemaV1 } from './standard-schema.js'
import { describeError, ignoreRejection, isA, isThenable, read } from './unknown.js'

/** What the schema makes of the value. Throws EventValidationError, or UndecodablePayloadError when it cannot run. */
export function applySchema(schema: StandardSchemaV1, value: unknown, eventType: string): unknown {
  try {
    const result = schema['~standard'].validate(value)
    if (typeof result !== 'object' || result === null) {
      throw new UndecodablePayloadError(eventType, 'its schema returned no result')
    }
    if (isThenable(result)) {
      ignoreRejection(result)
      throw notSynchronous(schema, value, eventType)
    }
    const { issues } = result
    if (issues !== undefined) throw new EventValidationError(eventType, issues)
    return result.value
  } catch (thrown) {
    if (isA(thrown, AftercommitError)) throw thrown
    throw new UndecodablePayloadError(eventType, 'its schema threw an error', { thrown })
  }
}

/** Whether the value follows Standard Schema. Never throws. */
export function isStandardSchema(value: unknown): value is StandardSchemaV1 {
  return typeof read(read(value, '~standard'), 'validate') === 'function'
}

/**
 * Returns the error for a schema that answered with a promise. zod (3 and 4) answers with a promise also when a transform
 * or a refinement throws: `validate` then repeats the validation asynchronously. A second run tells the two cases apart.
 */
function notSynchronous(
  schema: StandardSchemaV1,
  value: unknown,
  eventType: string,
): UndecodablePayloadError {
  try {
    runZod(schema, value)
  } catch (thrown) {
    if (!/synchronous parse/i.test(describeError(thrown).message)) {
      return new UndecodablePayloadError(eventType, 'its schema threw an error', { thrown })
    }
  }
  return new UndecodablePayloadError(
    eventType,
    'its schema is asynchronous: use synchronous checks, and do the rest before publishing or in the handler',
  )
}

/**
 * Throws what a transform or a refinement throws. For an asynchronous schema, zod 3 throws its own error about that, and
 * zod 4 returns a promise. The public `safeParse` of zod 4 would lose that promise: if it rejects, the rejection is unhandled.
 * The loss in `validate` of zod (4.4, and 3) remains.
 */
function runZod(schema: object, value: unknown): void {
  const zod4 = read(schema, '_zod')
  const run = read(zod4, 'run')
  const safeParse = read(schema, 'safeParse')
  if (typeof run === 'function') ignoreRejection(run.call(zod4, { value, issues: [] }, { async: true }))
  else if (typeof safeParse === 'function') ignoreRejection(safeParse.call(schema, value))
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
