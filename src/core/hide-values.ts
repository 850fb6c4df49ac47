import { AftercommitError } from './errors.js'
import { causesOf } from './unknown.js'

/** What a driver notes of an error that is no value of a row. */
export const DRIVER_FIELDS = [
  ...['code', 'errno', 'errcode', 'errstr', 'rawCode', 'extendedCode', 'originalCode', 'sqlState'],
  ...['severity', 'fatal', 'schema', 'table', 'column', 'constraint', 'dataType', 'routine'],
  ...['syscall', 'address', 'port'],
] as const

const NO_VALUES: ReadonlySet<PropertyKey> = new Set([
  ...DRIVER_FIELDS,
  ...['length', 'position', 'file', 'line', 'name', 'errors'],
])

/** The parts of an event that are nobody's business. */
interface Confidential {
  readonly payloadText: string | null
  readonly headers: Readonly<Record<string, string>>
  readonly metadata: { readonly userId?: string }
}

/** Shorter ones are in every text by chance. */
export const SHORTEST = 8
const MOST_INNER = 100
const HIDDEN = '…'

/**
 * An error of a driver, as it may be logged: PostgreSQL puts the whole row into `detail`, other drivers the statement or
 * the command with its values. Such fields can still be read by their names, but nobody prints them. Where the message
 * quotes the payload, a header or the user id of one of the events, that is cut out. Gives the same error back, and never
 * throws: what cannot be looked at or changed stays as it is.
 */
export function hideValues(error: unknown, events: readonly Confidential[] = []): unknown {
  hideValuesOf([error], events)
  return error
}

/** Of many errors, any of which may tell of any of the events. */
export function hideValuesOf(errors: Iterable<unknown>, events: readonly Confidential[]): void {
  let texts: readonly string[] | undefined
  for (const error of errors) {
    texts ??= [...new Set(events.flatMap(textsOf))].filter((text) => text.length >= SHORTEST)
    try {
      for (const one of withInner(error)) hideIn(one, texts)
    } catch {}
  }
}

/** Its causes, and those that any of them has gathered; the gathered ones may hold each other. */
function withInner(error: unknown): object[] {
  return causesOf(error).flatMap((one) => {
    const { errors } = one as { readonly errors?: unknown }
    return Array.isArray(errors) ? [one, ...errors.slice(0, MOST_INNER).flatMap(causesOf)] : [one]
  })
}

function hideIn(error: object, texts: readonly string[]): void {
  // Ours hold none.
  if (error instanceof AftercommitError) return
  for (const field of Object.keys(error)) {
    if (!NO_VALUES.has(field)) hide(error, field)
  }
  if (error instanceof Error) cut(error, texts)
}

function hide(error: object, field: string): void {
  // A frozen one stays as it is.
  if (Object.getOwnPropertyDescriptor(error, field)?.configurable) {
    Object.defineProperty(error, field, { enumerable: false })
  }
}

function cut(error: Error, texts: readonly string[]): void {
  const { message } = error
  if (typeof message !== 'string') return
  const quoted = texts.filter((text) => text.length <= message.length && message.includes(text))
  if (quoted.length === 0) return
  const without = (from: string) => quoted.reduce((rest, text) => rest.replaceAll(text, HIDDEN), from)
  const stack = error.stack === undefined ? undefined : without(error.stack)
  for (const [field, value] of Object.entries({ message: without(message), stack })) {
    Object.defineProperty(error, field, { value, enumerable: false, configurable: true, writable: true })
  }
}

/** The longest first: the metadata as it is stored holds the user id. */
function textsOf({ payloadText, headers, metadata }: Confidential): string[] {
  return [
    payloadText ?? '',
    JSON.stringify(headers),
    JSON.stringify(metadata),
    ...Object.values(headers),
  ].concat(metadata.userId ?? [])
}
