import { causesOf } from './causes.js'
import { AftercommitError } from './errors.js'

/** What a driver notes of an error that is no value of a row. */
const NO_VALUES: ReadonlySet<PropertyKey> = new Set([
  ...[
    'code',
    'errno',
    'errcode',
    'errstr',
    'rawCode',
    'extendedCode',
    'originalCode',
    'sqlState',
    'severity',
  ],
  ...[
    'fatal',
    'schema',
    'table',
    'column',
    'constraint',
    'dataType',
    'routine',
    'syscall',
    'address',
    'port',
  ],
  ...['length', 'position', 'file', 'line', 'name', 'errors'],
])

/** The parts of an event that are nobody's business. */
interface Confidential {
  readonly payloadText: string | null
  readonly headers: Readonly<Record<string, string>>
  readonly metadata: { readonly userId?: string }
}

/** Shorter ones are in every text by chance. */
const SHORTEST = 8
const HIDDEN = '…'

/**
 * An error of a driver, as it may be logged: PostgreSQL puts the whole row into `detail`, other drivers the statement or
 * the command with its values. Such fields can still be read by their names, but nobody prints them. Where the message
 * quotes the payload, a header or the user id of one of the events, that is cut out. Gives the same error back.
 */
export function hideValues(error: unknown, events: readonly Confidential[] = []): unknown {
  for (const one of causesOf(error)) {
    // Ours hold none.
    if (one instanceof AftercommitError) continue
    for (const field of Object.keys(one)) {
      if (!NO_VALUES.has(field)) hide(one, field)
    }
    if (events.length > 0 && one instanceof Error) cut(one, events)
  }
  return error
}

function hide(error: object, field: string): void {
  // A frozen one stays as it is.
  if (Object.getOwnPropertyDescriptor(error, field)?.configurable) {
    Object.defineProperty(error, field, { enumerable: false })
  }
}

function cut(error: Error, events: readonly Confidential[]): void {
  for (const text of events.flatMap(textsOf)) {
    if (text.length < SHORTEST || !error.message.includes(text)) continue
    const stack = error.stack?.replaceAll(text, HIDDEN)
    const message = error.message.replaceAll(text, HIDDEN)
    for (const [field, value] of Object.entries({ message, stack })) {
      Object.defineProperty(error, field, { value, enumerable: false, configurable: true, writable: true })
    }
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
