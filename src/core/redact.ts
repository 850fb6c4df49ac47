import { AftercommitError, hideProperty } from './errors/base.js'
import { idsOf, isEventLike } from './event-like.js'
import { CODE, failureOf, isPath, isRaisedByCode, SEE_ORIGINAL, safeText } from './server-report.js'
import { escapeUnprintable, sanitizeText } from './text.js'
import { causesOf, describeError, ignoreRejection, isA, read } from './unknown.js'

/*
 * All redaction of aftercommit. Payloads, header values, user ids and passwords leave the library only where docs/security.md
 * says so. Four outputs are covered:
 *
 * - log fields, spans and dead-letter texts: `redactText`, `redactError` and `redactFields`
 * - `console.log` and `util.inspect`: `inspectedAs` and `hideFromInspection`
 * - errors of databases, ORMs and brokers: `redactDriverError` and its siblings, with the texts of server-report.ts
 * - properties of errors that quote a payload: `hideProperty` in errors/base.ts
 */

// ── Text ───────────────────────────────────────────────────────────────────────────────────────────────────

/** A hook of the application that removes data from the name and the message of an error. */
export type Redact = (text: string) => string

const MAX_LOGGED = 500
const HIDDEN = '…'

/** Applies the hook, escapes unprintable characters, and cuts the result at 500 characters. */
export function redactText(text: string, redact: Redact | undefined): string {
  return sanitizeText(escapeUnprintable(applyHook(redact, text)), MAX_LOGGED)
}

/** Returns the name and message of any thrown value as a log line or a span may show them. */
export function redactError(thrown: unknown, redact: Redact | undefined): { name: string; message: string } {
  const { name, message } = describeError(thrown)
  return { name: redactText(name, redact), message: redactText(message, redact) }
}

function applyHook(redact: Redact | undefined, text: string): string {
  if (redact === undefined) return text
  try {
    const redacted: unknown = redact(text)
    if (typeof redacted === 'string') return redacted
    ignoreRejection(redacted)
    return '[redact gave no text]'
  } catch {
    return '[redact threw]'
  }
}

/** Replaces user, password and parameters in every URL of the text. */
export function withoutPasswords(text: string): string {
  return text
    .replace(/([a-z][\w+.-]*:\/\/)\S*@/gi, `$1${HIDDEN}@`)
    .replace(/([a-z][\w+.-]*:\/\/[^\s?]*)\?\S*?(?=['"]?[.,;)]?(\s|$))/gi, `$1?${HIDDEN}`)
}

// ── Log fields ─────────────────────────────────────────────────────────────────────────────────────────────

const MAX_DEPTH = 32
const MAX_INNER_ERRORS = 10
const MAX_FRAMES = 20

/** Method of an object that returns what a log line may show of it. */
export const LOGGED: unique symbol = Symbol('aftercommit.logged')

export interface FieldOptions {
  readonly redact: Redact | undefined
  /** Whether strings are escaped. A logger that escapes its whole output needs no escaped strings. */
  readonly escapes: boolean
}

/**
 * Returns log fields without payloads, header values and user ids. An event at any depth becomes its ids, an error becomes a
 * copy whose name and message the hook has seen. Fields that need no change are returned as they are.
 */
export function redactFields<Fields extends Readonly<Record<string, unknown>>>(
  fields: Fields,
  options: FieldOptions,
): Readonly<Record<string, unknown>> {
  try {
    return new FieldRedactor(options).fields(fields)
  } catch {
    return { fields: '[unreadable]' }
  }
}

class FieldRedactor {
  readonly #redact: Redact | undefined
  readonly #escapes: boolean
  /** Results by object. An object whose result is being computed is its own ancestor, and has no result yet. */
  #seen: Map<object, { result: unknown }> | undefined

  constructor({ redact, escapes }: FieldOptions) {
    this.#redact = redact
    this.#escapes = escapes
  }

  /** The fields `error` and `error_message` hold the text of an error in every line of the library. */
  fields(fields: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
    let copy: Record<string, unknown> | undefined
    for (const name of Object.keys(fields)) {
      const field = fields[name]
      const isErrorText = typeof field === 'string' && (name === 'error' || name === 'error_message')
      const shown = isErrorText ? this.#errorString(field) : this.#value(field, MAX_DEPTH)
      const shownName = this.#text(name)
      if (shown === field && shownName === name) continue
      copy ??= { ...fields }
      if (shownName !== name) delete copy[name]
      define(copy, shownName, { value: shown, enumerable: true })
    }
    return copy ?? fields
  }

  #errorString(text: string): string {
    return sanitizeText(this.#text(applyHook(this.#redact, text)), MAX_LOGGED)
  }

  #text(text: string): string {
    return this.#escapes ? escapeUnprintable(text) : text
  }

  #value(value: unknown, depth: number): unknown {
    if (typeof value === 'string') return this.#text(value)
    if (typeof value === 'function') return typeof read(value, 'toJSON') === 'function' ? '[function]' : value
    if (typeof value !== 'object' || value === null) return value
    this.#seen ??= new Map()
    const known = this.#seen.get(value)
    if (known) return known.result
    // Until the result is known, this object can be met only inside itself.
    const entry: { result: unknown } = { result: '[circular]' }
    this.#seen.set(value, entry)
    entry.result = this.#object(value, depth)
    return entry.result
  }

  #object(value: object, depth: number): unknown {
    if (depth === 0) return '[too deep]'
    try {
      const logged = read(value, LOGGED)
      if (typeof logged === 'function') return this.#value(logged.call(value), depth - 1)
      if (isError(value)) return this.#error(value, depth - 1)
      if (isEventLike(value)) return this.#properties(idsOf(value), depth - 1)
      if (value instanceof Date || ArrayBuffer.isView(value)) return value
      const toJson = (value as { toJSON?: unknown }).toJSON
      if (typeof toJson === 'function') return this.#value(toJson.call(value, ''), depth - 1)
      if (Array.isArray(value)) return this.#list(value, depth - 1)
      if (value instanceof Map) return this.#map(value, depth - 1)
      if (value instanceof Set) return this.#set(value, depth - 1)
      return this.#properties(value, depth - 1)
    } catch {
      return '[unreadable]'
    }
  }

  #list(list: readonly unknown[], depth: number): unknown {
    const shown = list.map((item) => this.#value(item, depth))
    return shown.some((item, at) => item !== list[at]) ? shown : list
  }

  #map(map: ReadonlyMap<unknown, unknown>, depth: number): unknown {
    const entries = [...map]
    const shown = entries.map((entry) => this.#list(entry, depth) as [unknown, unknown])
    return shown.some((entry, at) => entry !== entries[at]) ? new Map(shown) : map
  }

  #set(set: ReadonlySet<unknown>, depth: number): unknown {
    const items = [...set]
    const shown = this.#list(items, depth)
    return shown === items ? set : new Set(shown as unknown[])
  }

  /** Getters are called once: the next call might return something else. */
  #properties(value: object, depth: number): unknown {
    let copy: Record<string, unknown> | undefined
    for (const [name, { get }] of Object.entries(Object.getOwnPropertyDescriptors(value))) {
      if (!Object.prototype.propertyIsEnumerable.call(value, name)) continue
      const field: unknown = Reflect.get(value, name)
      const shown = this.#value(field, depth)
      const shownName = this.#text(name)
      if (shown === field && shownName === name && get === undefined) continue
      copy ??= { ...value }
      if (shownName !== name) delete copy[name]
      define(copy, shownName, { value: shown, enumerable: true })
    }
    return copy ?? value
  }

  /** An error, because loggers have special treatment for errors. It is a copy without the fields of the original. */
  #error(error: object, depth: number): Error {
    const described = describeError(error)
    const [name, message] = [this.#errorString(described.name), this.#errorString(described.message)]
    const shown: Record<string, unknown> = { name, message }
    const code = this.#code(read(error, 'code'))
    if (code !== undefined) shown.code = code
    const cause = read(error, 'cause')
    if (cause !== undefined) shown.cause = isError(cause) ? this.#value(cause, depth) : '[hidden]'
    const inner = read(error, 'errors')
    if (Array.isArray(inner)) {
      shown.errors = inner
        .slice(0, MAX_INNER_ERRORS)
        .map((item) => (isError(item) ? this.#value(item, depth) : '[hidden]'))
    }
    const frames = framesOf(error, MAX_FRAMES).map((frame) => this.#errorString(frame))
    return errorWith(shown, [`${name}: ${message}`, ...frames].join('\n'))
  }

  /** Returns the code as it is if the hook does not change it, so that a number stays a number. */
  #code(code: unknown): unknown {
    const isCode = typeof code === 'number' || (typeof code === 'string' && CODE.test(code))
    if (!isCode) return undefined
    const shown = this.#errorString(String(code))
    return shown === String(code) ? code : shown
  }
}

/** Whether the value is an error, also of another realm or of a library that does not extend `Error`. */
export function isError(value: unknown): boolean {
  if (isA(value, Error)) return true
  return typeof read(value, 'message') === 'string' && typeof read(value, 'stack') === 'string'
}

/** pino takes the name of the class from `constructor`, and the name of the error where there is none. */
function errorWith(shown: Readonly<Record<string, unknown>>, stack: string): Error {
  const { name, message, code, cause, errors } = shown
  const error = new Error(String(message))
  for (const [field, value] of Object.entries({ name, stack, cause, errors, constructor: undefined }))
    if (value !== undefined || field === 'constructor') define(error, field, { value })
  if (code !== undefined) define(error, 'code', { value: code, enumerable: true })
  define(error, 'toJSON', { value: () => shown })
  return error
}

/** The lines of the stack below the message. A message can look like a frame, so it must be found in front of them. */
function framesOf(error: object, limit: number): string[] {
  const [stack, message] = [read(error, 'stack'), read(error, 'message')]
  if (typeof stack !== 'string' || typeof message !== 'string') return []
  const at = stack.indexOf(message)
  if (at < 0 || (message === '' && !/^[\w$.]*\n/.test(stack))) return []
  const frames = stack
    .slice(at + message.length)
    .split('\n')
    .filter((line) => /^\s+at /.test(line))
  return frames.slice(0, limit).map(escapeUnprintable)
}

// ── Inspection ─────────────────────────────────────────────────────────────────────────────────────────────

/** Node calls the method of this name instead of printing the properties of an object. */
export const INSPECT = Symbol.for('nodejs.util.inspect.custom')

type Inspect = (value: unknown, options: unknown) => string

/**
 * Result of an `INSPECT` method: `Title { … }` with the fields, or the fields if the runtime passes no `inspect`. Node also
 * calls the method on a proxy of the object and on objects that inherit from it, where reading a field can throw.
 */
export function inspectedAs(
  title: string,
  fieldsOf: () => object,
  options: unknown,
  inspect?: Inspect,
): unknown {
  const before = title === '' ? '' : `${title} `
  try {
    const fields = fieldsOf()
    return inspect === undefined ? fields : before + inspect(fields, options)
  } catch {
    return `${before}[unreadable]`
  }
}

/** The confidential parts of an event. */
export interface Confidential {
  readonly payloadText: string | null
  readonly headers: Readonly<Record<string, string>> | null
  readonly metadata: { readonly userId?: string } | null
}

/** The parts of a row that its inspection replaces. */
interface InspectedRow extends Confidential {
  readonly payloadBytes?: unknown
  readonly payloadSize: number
}

/** The fields of a row without payload, header values and user id. */
export function withoutData(row: object & InspectedRow): Record<string, unknown> {
  const { payloadText: _text, payloadBytes: _bytes, payloadSize, headers, metadata, ...fields } = row
  return {
    ...fields,
    headers: Object.keys(headers ?? {}),
    metadata: metadata === null ? null : withoutUser(metadata),
    payload: `[hidden, ${payloadSize} bytes]`,
  }
}

/**
 * Lets `console.log` print a row without payload, header values and user id, and with error texts of at most 500 characters.
 * The properties and the JSON of the row are complete. Returns the same object.
 */
export function hideFromInspection<Row extends object & InspectedRow>(row: Row): Row {
  const { metadata } = row
  const isPlain = typeof metadata === 'object' && metadata !== null && read(metadata, LOGGED) === undefined
  if (isPlain && Object.isExtensible(metadata)) {
    define(metadata, INSPECT, { value: inspectMetadata })
    define(metadata, LOGGED, { value: logMetadata })
  }
  define(row, INSPECT, { value: inspectRow })
  return row
}

/** A plain copy of metadata that may be printed. */
export function withoutUser<Metadata extends { readonly userId?: string }>(metadata: Metadata): Metadata {
  return metadata.userId === undefined ? { ...metadata } : { ...metadata, userId: '[redacted]' }
}

function inspectMetadata(this: object, _depth: number, options: unknown, inspect?: Inspect): unknown {
  return inspectedAs('', () => withoutUser(this), options, inspect)
}

function logMetadata(this: object): object {
  return withoutUser(this)
}

function inspectRow(this: InspectedRow, _depth: number, options: unknown, inspect?: Inspect): unknown {
  return inspectedAs('EventRecord', () => rowWithoutData(this), options, inspect)
}

function rowWithoutData(row: InspectedRow): object {
  const shown = withoutData(row)
  const { lastError, failures } = shown
  if (typeof lastError === 'string') shown.lastError = redactText(lastError, undefined)
  if (Array.isArray(failures)) {
    shown.failures = failures.map((failure: { message?: unknown }) => ({
      ...failure,
      message: redactText(String(failure.message), undefined),
    }))
  }
  return shown
}

// ── Errors ─────────────────────────────────────────────────────────────────────────────────────────────────

function define(holder: object, name: string | symbol, attributes: PropertyDescriptor): void {
  Object.defineProperty(holder, name, {
    configurable: true,
    writable: true,
    enumerable: false,
    ...attributes,
  })
}

/** Fields of driver errors that hold no value of a row. Every other field is hidden. */
const SAFE_FIELDS = [
  ...['code', 'errno', 'errcode', 'errstr', 'rawCode', 'extendedCode', 'originalCode', 'sqlState'],
  ...['severity', 'fatal', 'syscall', 'address', 'port', 'routine'],
] as const
/** Fields that name objects of the database. A trigger can write data into them. */
const NAME_FIELDS = [
  ...['schema', 'table', 'column', 'constraint', 'dataType'],
  ...['schema_name', 'table_name', 'column_name', 'constraint_name', 'type_name'],
] as const

const VISIBLE: ReadonlySet<string> = new Set([
  ...SAFE_FIELDS,
  ...NAME_FIELDS,
  ...['length', 'position', 'file', 'line', 'name', 'message', 'stack', 'cause', 'errors'],
])

const MAX_DRIVER_ERRORS = 100

/** Message of a driver's error before redaction. */
const originals = new WeakMap<object, string>()

/** Returns the message of a driver's error as the driver or the server wrote it. It may hold data of a row. */
export function originalMessageOf(error: unknown): string {
  const original = typeof error === 'object' && error !== null ? originals.get(error) : undefined
  return original ?? String(read(error, 'message') ?? '')
}

/**
 * Makes an error of a database driver fit for logs. A server's message is replaced unless it is known to hold no data,
 * because a trigger or a constraint can put any part of a row into it. Any other message is replaced if it quotes one of the
 * events. Fields that may hold data are hidden. The original text stays readable as `originalMessage`. Returns the same error,
 * or a copy of an error that cannot be changed.
 */
export function redactDriverError(error: unknown, events: readonly Confidential[] = []): unknown {
  return new DriverErrors(quotesOf(events)).clean(error, 0)
}

/** Describes an error of a driver in one phrase, for people who cannot read the properties of the error. */
export function describeDriverError(error: unknown): { name: string; message: string } {
  const { name, message } = describeError(redactDriverError(error))
  return { name, message: message.replace(SEE_ORIGINAL, '').replace(/\.$/, '') }
}

/** Redacts the errors of a batch. Each of them may quote any of the events. */
export function redactDriverErrors(errors: readonly unknown[], events: readonly Confidential[]): unknown[] {
  const redactor = new DriverErrors(quotesOf(events))
  return errors.map((error) => redactor.clean(error, 0))
}

/**
 * Returns the driver's error about a statement that the outbox ran through an ORM. ORMs write the statement and its values
 * into messages, stacks and fields, so the result has only the class and the codes of the innermost error that has a code.
 */
export function redactHostedError(error: unknown, sql: string, params: readonly unknown[]): unknown {
  if (isA(error, AftercommitError)) return error
  const reported = causesOf(error).findLast(hasCode) ?? error
  const message = String(read(reported, 'sqlMessage') ?? describeError(reported).message)
  const words = withoutStatement(message, sql)
  const isFilledIn = quotesStatement(words, sql)
  const safe = isFilledIn ? failureOf(reported) : safeText(reported, words)
  const text = safe ?? (quotes(words, params) ? failureOf(reported) : words)
  return copyOf(reported, text, isFilledIn ? text : words)
}

/** ORMs put the statement, with its values filled in, in front of the server's words. It ends at the last dash. */
function withoutStatement(message: string, sql: string): string {
  const isInFront = quotesStatement(message, sql) && flat(message).startsWith(openingOf(sql))
  return isInFront ? message.slice(message.lastIndexOf(' - ') + 3) : message
}

function quotesStatement(message: string, sql: string): boolean {
  const opening = openingOf(sql)
  return opening.length > 12 && flat(message).includes(opening)
}

function openingOf(sql: string): string {
  return flat(sql).slice(0, 24)
}

function flat(text: string): string {
  return text.replace(/\s+/g, ' ').trim()
}

function quotes(text: string, params: readonly unknown[]): boolean {
  return params.some((param) => typeof param === 'string' && param !== '' && text.includes(param))
}

function hasCode(error: object): boolean {
  return ['code', 'errno', 'errcode'].some((field) => read(error, field) !== undefined)
}

/** Texts of the events that an error may quote. */
function quotesOf(events: readonly Confidential[]): readonly string[] {
  const texts = events.flatMap(({ payloadText, headers, metadata }) => [
    payloadText ?? '',
    ...Object.values(headers ?? {}),
    metadata?.userId ?? '',
  ])
  return [...new Set(texts)].filter((text) => text !== '')
}

class DriverErrors {
  readonly #quotes: readonly string[]

  constructor(quotes: readonly string[]) {
    this.#quotes = quotes
  }

  clean(error: unknown, depth: number): unknown {
    if (typeof error === 'string') return this.#isQuoted(error) ? HIDDEN : error
    if (typeof error !== 'object' || error === null) return error
    try {
      return this.#cleanObject(error, depth)
    } catch {
      // An error that cannot be read cannot be printed either.
      return error
    }
  }

  #cleanObject(error: object, depth: number): object {
    if (depth > MAX_INNER_ERRORS) return new Error('[too deep]')
    const cleaned = isA(error, AftercommitError) ? error : this.#cleanOwn(error)
    const cause = read(cleaned, 'cause')
    const cleanCause = this.clean(cause, depth + 1)
    if (cleanCause !== cause) define(cleaned, 'cause', { value: cleanCause })
    const inner = read(cleaned, 'errors')
    if (!Array.isArray(inner)) return cleaned
    const cleanInner = inner.slice(0, MAX_DRIVER_ERRORS).map((item) => this.clean(item, depth + 1))
    if (cleanInner.length < inner.length || cleanInner.some((item, at) => item !== inner[at]))
      define(cleaned, 'errors', { value: cleanInner })
    return cleaned
  }

  #cleanOwn(error: object): object {
    const target = canChange(error) ? error : changeableCopyOf(error)
    const areNamesUnsafe = isRaisedByCode(target)
    for (const field of Object.getOwnPropertyNames(target)) {
      const isName = (NAME_FIELDS as readonly string[]).includes(field)
      const isSocket = field === 'address' && isPath(read(target, field))
      if (!VISIBLE.has(field) || isSocket || (isName && areNamesUnsafe))
        hideProperty(target, field, Reflect.get(target, field))
    }
    const message = read(target, 'message')
    if (typeof message !== 'string' || originals.has(target)) return target
    const text = this.#textOf(target, message)
    if (text !== message) replaceMessage(target, text, message)
    return target
  }

  /** The message to show. */
  #textOf(error: object, message: string): string {
    return (
      safeText(error, message) ?? (this.#isQuoted(message) ? failureOf(error) : withoutArguments(message))
    )
  }

  #isQuoted(text: string): boolean {
    return this.#quotes.some((quote) => quote.length <= text.length && text.includes(quote))
  }
}

/** Redis quotes the first arguments of a command that it does not know. */
function withoutArguments(text: string): string {
  return text.replace(/(with args beginning with:).*/is, `$1 ${HIDDEN}`)
}

/** postgres.js defines the parameters of the statement as properties that cannot be changed. */
function canChange(error: object): boolean {
  const names = Object.getOwnPropertyNames(error)
  return (
    Object.isExtensible(error) &&
    names.every((name) => Object.getOwnPropertyDescriptor(error, name)?.configurable === true)
  )
}

/** An error of the same class with the same properties. */
function changeableCopyOf(error: object): object {
  const copy = new Error()
  Object.setPrototypeOf(copy, Object.getPrototypeOf(error))
  for (const [name, attributes] of Object.entries(Object.getOwnPropertyDescriptors(error)))
    Object.defineProperty(copy, name, { ...attributes, configurable: true })
  const original = originals.get(error)
  if (original !== undefined) originals.set(copy, original)
  return copy
}

function replaceMessage(error: object, text: string, message: string): void {
  const frames = framesOf(error, Number.POSITIVE_INFINITY)
  const { name } = describeError(error)
  originals.set(error, message)
  define(error, 'message', { value: text })
  define(error, 'stack', { value: [`${name}: ${text}`, ...frames].join('\n') })
  hideProperty(error, 'originalMessage', message)
}

/** A new error of the same class, with the codes of the old one and nothing else. */
function copyOf(error: unknown, text: string, message: string): Error {
  const copy = new Error(text)
  if (isA(error, Error)) Object.setPrototypeOf(copy, Object.getPrototypeOf(error))
  for (const field of isRaisedByCode(error) ? SAFE_FIELDS : [...SAFE_FIELDS, ...NAME_FIELDS]) {
    const value = read(error, field)
    if (field === 'address' && isPath(value)) continue
    if (value !== null && ['string', 'number', 'boolean'].includes(typeof value))
      define(copy, field, { value, enumerable: true })
  }
  originals.set(copy, message)
  hideProperty(copy, 'originalMessage', message)
  return copy
}
