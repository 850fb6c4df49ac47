import { sanitizeText } from './text.js'

/*
 * Safe inspection of values that come from application code: what a handler, hook, policy or driver throws or returns.
 * Any access to such a value can throw. Examples are a revoked Proxy, a getter that throws, and a `then` property that
 * throws. Application values are inspected through these functions only.
 */

const MAX_MESSAGE = 4_000
const MAX_NAME = 100
const MAX_CAUSES = 10
const UNREADABLE = 'a value was thrown that cannot be read'

/** Returns a property of any value, or `undefined` when there is none or when reading it throws. */
export function read(value: unknown, key: PropertyKey): unknown {
  try {
    return (value as Readonly<Record<PropertyKey, unknown>>)[key]
  } catch {
    return undefined
  }
}

/** Any class, also one with a private constructor. */
interface ClassOf<T> {
  readonly prototype: T
  [Symbol.hasInstance](value: unknown): boolean
}

/** Works like `instanceof`, but returns `false` when reading the prototype throws. */
export function isA<T>(value: unknown, type: ClassOf<T>): value is T {
  try {
    return value instanceof type
  } catch {
    return false
  }
}

/** Whether the value can be awaited: a promise of any realm, or another object with a `then` function. */
export function isThenable(value: unknown): value is PromiseLike<unknown> {
  const mayBe = (typeof value === 'object' && value !== null) || typeof value === 'function'
  return mayBe && typeof read(value, 'then') === 'function'
}

/**
 * Awaits any value. The result is a native promise, which rejects where `Promise.resolve(value)` or `value.then()` would
 * throw, and which settles once even if the value calls both of its callbacks.
 */
export async function settled<T>(value: T): Promise<Awaited<T>> {
  return await value
}

/** Prevents an unhandled rejection of a value that is not awaited, such as the promise of an asynchronous logger. */
export function ignoreRejection(value: unknown): void {
  if (isThenable(value)) settled(value).catch(() => {})
}

/** Returns an error and its causes, the outermost first. Stops after ten, because causes can form a cycle. */
export function causesOf(error: unknown): object[] {
  const found: object[] = []
  for (let cause = error; typeof cause === 'object' && cause !== null && found.length < MAX_CAUSES; ) {
    found.push(cause)
    cause = read(cause, 'cause')
  }
  return found
}

/** Returns the name and message of any thrown value, fit for a database column. */
export function describeError(thrown: unknown): { name: string; message: string } {
  if (typeof thrown === 'function') return description('NonError', 'a function was thrown')
  if (typeof thrown !== 'object' || thrown === null) return description('NonError', String(thrown))
  return description(
    textProperty(thrown, 'name') ?? 'NonError',
    textProperty(thrown, 'message') || fallbackMessage(thrown),
  )
}

function description(name: string, message: string): { name: string; message: string } {
  return { name: sanitizeText(name, MAX_NAME), message: sanitizeText(message, MAX_MESSAGE) }
}

function textProperty(holder: unknown, key: string): string | undefined {
  const value = read(holder, key)
  return typeof value === 'string' ? value : undefined
}

/** Describes an object without a message: by its code and inner errors (a refused connection), or by its keys. */
function fallbackMessage(thrown: object): string {
  try {
    const code = textProperty(thrown, 'code')
    const parts = code === undefined ? [] : [code]
    const inner = read(thrown, 'errors')
    if (Array.isArray(inner)) parts.push(...inner.slice(0, 5).map(innerMessage))
    if (parts.length > 0) return parts.join('; ')
    if (thrown instanceof Error) return ''
    return `an object was thrown, with the keys: ${Object.keys(thrown).slice(0, 10).join(', ') || 'none'}`
  } catch {
    return UNREADABLE
  }
}

/** Reads one level only, because errors can contain each other. */
function innerMessage(inner: unknown): string {
  return typeof inner === 'object' && inner !== null ? (textProperty(inner, 'message') ?? '') : String(inner)
}
