import { InvalidPayloadError, PayloadTooLargeError } from './errors.js'
import { formatPath } from './path.js'
import { MAX_PAYLOAD_BYTES, MAX_PAYLOAD_DEPTH, utf8Length } from './payload-limits.js'
import { isWellFormed } from './text.js'

const NUMBER = /-?\d[\d.eE+-]*/y
const MAX_NUMBER_LENGTH = 1_000

/**
 * Checks JSON text that a caller serialised, and returns it unchanged. It must parse and keep every limit that
 * serializeJson keeps; otherwise InvalidPayloadError with the path, or PayloadTooLargeError.
 */
export function checkJsonText(text: string): string {
  if (typeof text !== 'string') throw new InvalidPayloadError('$', 'the JSON text is not a string')
  if (text.length > MAX_PAYLOAD_BYTES || utf8Length(text) > MAX_PAYLOAD_BYTES) {
    throw new PayloadTooLargeError(MAX_PAYLOAD_BYTES)
  }
  try {
    JSON.parse(text)
  } catch {
    // Without the cause: its message quotes the text.
    throw new InvalidPayloadError('$', 'the text is not valid JSON')
  }
  new JsonScanner(text).scan()
  return text
}

/**
 * Walks text that is known to be valid JSON. The parsed value is not enough: of two equal keys it shows the last
 * only, while a database checks both.
 */
class JsonScanner {
  readonly #text: string
  readonly #path: (string | number)[] = []
  #at = 0

  constructor(text: string) {
    this.#text = text
  }

  scan(): void {
    let isKeyNext = false
    for (; this.#at < this.#text.length; this.#at++) {
      const char = this.#text[this.#at] as string
      if (char === '"') {
        this.#string(isKeyNext)
        isKeyNext = false
      } else if (char === '{' || char === '[') {
        if (this.#path.length === MAX_PAYLOAD_DEPTH)
          this.#refuse(`it is nested deeper than ${MAX_PAYLOAD_DEPTH} levels`)
        this.#path.push(char === '{' ? '' : 0)
        isKeyNext = char === '{'
      } else if (char === '}' || char === ']') {
        this.#path.pop()
        isKeyNext = false
      } else if (char === ',') isKeyNext = this.#nextItem()
      else if (char === '-' || (char >= '0' && char <= '9')) this.#number()
    }
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
    let end = this.#text.indexOf('"', start)
    while (this.#isEscaped(end)) end = this.#text.indexOf('"', end + 1)
    this.#at = end
    const raw = this.#text.slice(start, end)
    const value = raw.includes('\\') ? (JSON.parse(`"${raw}"`) as string) : raw
    if (isKey) this.#path[this.#path.length - 1] = value
    const what = isKey ? 'the key' : 'the string'
    if (value.includes('\0')) this.#refuse(`${what} holds U+0000, which databases reject`)
    if (!isWellFormed(value)) this.#refuse(`${what} holds half a surrogate pair, which databases reject`)
  }

  /** An odd number of backslashes before a quote escapes it. */
  #isEscaped(quote: number): boolean {
    let before = quote - 1
    while (this.#text[before] === '\\') before--
    return (quote - before) % 2 === 0
  }

  #number(): void {
    NUMBER.lastIndex = this.#at
    const token = NUMBER.exec(this.#text)?.[0] as string
    this.#at += token.length - 1
    const value = Number(token)
    const isLost = value === 0 && /[1-9]/.test(token.split(/[eE]/)[0] as string)
    if (!Number.isFinite(value) || isLost || token.length > MAX_NUMBER_LENGTH) {
      this.#refuse('the number is outside the range of a double')
    }
  }

  #refuse(reason: string): never {
    throw new InvalidPayloadError(formatPath(this.#path), reason)
  }
}
