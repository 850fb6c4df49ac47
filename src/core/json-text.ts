import { parsed } from './columns.js'
import { InvalidPayloadError, PayloadTooLargeError } from './errors.js'
import { numberProblem } from './json-number.js'
import { formatPath } from './path.js'
import { MAX_PAYLOAD_BYTES, MAX_PAYLOAD_DEPTH, utf8Length } from './payload-limits.js'
import { isWellFormed } from './text.js'

const NUMBER = /-?\d[\d.eE+-]*/y
/** From this number of keys on, a set finds a duplicate faster than a comparison with each key. */
const MANY_KEYS = 16

const QUOTE = 34
const COMMA = 44
const MINUS = 45
const ZERO = 48
const NINE = 57
const OPEN_ARRAY = 91
const BACKSLASH = 92
const CLOSE_ARRAY = 93
const OPEN_OBJECT = 123
const CLOSE_OBJECT = 125

/**
 * Checks JSON text that a caller serialised, and returns it unchanged. The text must parse, must keep every limit that
 * serializeJson() keeps, and must come back equal: no number may have more digits than a double keeps, and no key may come
 * twice. Otherwise throws InvalidPayloadError with the path, or PayloadTooLargeError.
 */
export function checkJsonText(text: string): string {
  if (typeof text !== 'string') throw new InvalidPayloadError('$', 'the JSON text is not a string')
  if (text.length > MAX_PAYLOAD_BYTES || utf8Length(text) > MAX_PAYLOAD_BYTES) {
    throw new PayloadTooLargeError(MAX_PAYLOAD_BYTES)
  }
  parseJsonText(text, (path, reason) => new InvalidPayloadError(path, reason), MAX_PAYLOAD_DEPTH)
  return text
}

/**
 * Checks JSON text of a stored row against the limits of checkJsonText(). A key that comes twice is accepted, because no
 * quick check finds it; its last value counts. `isJson`: the text is known to be valid JSON.
 */
export function checkStoredJson(text: string, isJson: boolean): void {
  if (text.length * 3 > MAX_PAYLOAD_BYTES && utf8Length(text) > MAX_PAYLOAD_BYTES) {
    throw new PayloadTooLargeError(MAX_PAYLOAD_BYTES)
  }
  if (isUnsuspicious(text) && (isJson || parsed(text) !== undefined)) return
  const refuse = (path: string, reason: string) => new InvalidPayloadError(path, reason)
  parseJsonText(text, refuse, MAX_PAYLOAD_DEPTH, true)
}

/** Shorter numbers without an exponent are exact as a double. */
const EXACT_DIGITS = 15
const POINT = 46
/** `e`, and `E` with the bit that makes a letter small. The same bit turns brackets into braces. */
const EXPONENT = 101
const SMALL = 0x20

/**
 * Whether valid JSON text certainly keeps the limits, found with one pass that costs a fraction of `JSON.parse()`. False
 * does not mean that the text breaks a limit, but that a scan must find out.
 */
function isUnsuspicious(text: string): boolean {
  // Only an escape can stand for U+0000 or half a surrogate pair in text from a database.
  if (text.includes('\\u')) return false
  let depth = 0
  for (let at = 0; at < text.length; at++) {
    const unit = text.charCodeAt(at)
    if (unit === QUOTE) {
      at = endOfString(text, at)
      if (at < 0) return false
    } else if ((unit | SMALL) === OPEN_OBJECT) {
      if (++depth > MAX_PAYLOAD_DEPTH) return false
    } else if ((unit | SMALL) === CLOSE_OBJECT) depth--
    else if (unit === MINUS || (unit >= ZERO && unit <= NINE)) {
      const start = at
      while (isPartOfNumber(text.charCodeAt(at + 1))) at++
      if (at - start >= EXACT_DIGITS || (text.charCodeAt(at + 1) | SMALL) === EXPONENT) return false
      // It may be -0, which comes back as 0.
      if (unit === MINUS && text.charCodeAt(start + 1) === ZERO) return false
    }
  }
  return true
}

/** Index of the quote that ends the string; negative if there is none. */
function endOfString(text: string, start: number): number {
  let end = text.indexOf('"', start + 1)
  while (end > 0 && isEscaped(text, end)) end = text.indexOf('"', end + 1)
  return end
}

/** Whether an odd number of backslashes stands before the quote. */
function isEscaped(text: string, quote: number): boolean {
  let before = quote - 1
  while (text.charCodeAt(before) === BACKSLASH) before--
  return (quote - before) % 2 === 0
}

function isPartOfNumber(unit: number): boolean {
  return (unit >= ZERO && unit <= NINE) || unit === POINT
}

/** Parses JSON text of another program. Throws what `refuse` returns if a value would not come back equal. */
export function parseJsonText(
  text: string,
  refuse: (path: string, reason: string) => Error,
  maxDepth = Number.POSITIVE_INFINITY,
  mayRepeatKeys = false,
): unknown {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    // Without the cause: its message quotes the text.
    throw refuse('$', 'the text is not valid JSON')
  }
  new JsonScanner(text, maxDepth, mayRepeatKeys, refuse).scan()
  return value
}

/**
 * Walks text that is known to be valid JSON. The parsed value is not enough: a number in it is rounded already, and of two
 * equal keys it has the last one only.
 */
class JsonScanner {
  readonly #text: string
  readonly #maxDepth: number
  readonly #mayRepeatKeys: boolean
  readonly #refusal: (path: string, reason: string) => Error
  readonly #path: (string | number)[] = []
  /** Keys of each open object so far; undefined for an open array. */
  readonly #keys: (Keys | undefined)[] = []
  #at = 0

  constructor(
    text: string,
    maxDepth: number,
    mayRepeatKeys: boolean,
    refusal: (path: string, reason: string) => Error,
  ) {
    this.#text = text
    this.#maxDepth = maxDepth
    this.#mayRepeatKeys = mayRepeatKeys
    this.#refusal = refusal
  }

  scan(): void {
    const text = this.#text
    let isKeyNext = false
    for (; this.#at < text.length; this.#at++) {
      const char = text.charCodeAt(this.#at)
      if (char === QUOTE) {
        this.#string(isKeyNext)
        isKeyNext = false
      } else if (char === OPEN_OBJECT || char === OPEN_ARRAY) {
        this.#open(char === OPEN_OBJECT)
        isKeyNext = char === OPEN_OBJECT
      } else if (char === CLOSE_OBJECT || char === CLOSE_ARRAY) {
        this.#path.pop()
        this.#keys.pop()
        isKeyNext = false
      } else if (char === COMMA) isKeyNext = this.#nextItem()
      else if (char === MINUS || (char >= ZERO && char <= NINE)) this.#number()
    }
  }

  #open(isObject: boolean): void {
    if (this.#path.length === this.#maxDepth)
      this.#refuse(`it is nested deeper than ${this.#maxDepth} levels`)
    this.#path.push(isObject ? '' : 0)
    this.#keys.push(isObject && !this.#mayRepeatKeys ? new Keys() : undefined)
  }

  /** After a comma: true when a key comes next, false when the next item of an array does. */
  #nextItem(): boolean {
    const key = this.#path[this.#path.length - 1]
    if (typeof key === 'string') return true
    this.#path[this.#path.length - 1] = (key as number) + 1
    return false
  }

  #string(isKey: boolean): void {
    const start = this.#at + 1
    const end = endOfString(this.#text, this.#at)
    this.#at = end
    const raw = this.#text.slice(start, end)
    const value = raw.includes('\\') ? (JSON.parse(`"${raw}"`) as string) : raw
    if (isKey) this.#path[this.#path.length - 1] = value
    const what = isKey ? 'the key' : 'the string'
    if (value.includes('\0')) this.#refuse(`${what} holds U+0000, which databases reject`)
    if (!isWellFormed(value)) this.#refuse(`${what} holds half a surrogate pair, which databases reject`)
    if (isKey && this.#keys[this.#keys.length - 1]?.add(value) === false) {
      this.#refuse('the key comes twice in one object, and only one value would be kept')
    }
  }

  #number(): void {
    NUMBER.lastIndex = this.#at
    const token = NUMBER.exec(this.#text)?.[0] as string
    this.#at += token.length - 1
    const problem = numberProblem(token)
    if (problem !== undefined) this.#refuse(problem)
  }

  #refuse(reason: string): never {
    throw this.#refusal(formatPath(this.#path), reason)
  }
}

/** Keys of one object. */
class Keys {
  readonly #few: string[] = []
  #many: Set<string> | undefined

  /** False if the key was added before. */
  add(key: string): boolean {
    if (this.#many !== undefined) return this.#many.size !== this.#many.add(key).size
    if (this.#few.includes(key)) return false
    this.#few.push(key)
    if (this.#few.length === MANY_KEYS) this.#many = new Set(this.#few)
    return true
  }
}
