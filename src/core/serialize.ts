import { InvalidPayloadError, PayloadTooLargeError } from './errors.js'
import { formatPath } from './path.js'
import { MAX_PAYLOAD_BYTES, MAX_PAYLOAD_DEPTH, utf8Length } from './payload-limits.js'
import { hiddenProperty, isPlainObject, kindOf, refusedKind } from './plain.js'
import { isWellFormed, quoteText } from './text.js'

/** 'json': JSON values only. 'schema': also values with toJSON and class instances; the schema brings them back. */
export type SerializeMode = 'json' | 'schema'

/** Controls, the quote, the backslash and surrogates; everything else goes into JSON text as it is. */
const NEEDS_CARE = /[^ !#-[\]-\ud7ff\ue000-\uffff]/
/** As they are written. The events of an application have the same few keys again and again. */
const KEYS = new Map<string, string>()
const MOST_KNOWN_KEYS = 1_000
const LONGEST_KNOWN_KEY = 64
/** Ends the walk of an object graph that writes next to nothing but has no end of properties. */
const MAX_DROPPED = MAX_PAYLOAD_BYTES

/**
 * The JSON text of the value, validated and written in one pass: getters and toJSON run once, and what was checked
 * is what was written. Throws InvalidPayloadError with the path of the first bad value, or PayloadTooLargeError.
 */
export function serializeJson(value: unknown, mode: SerializeMode): string {
  const text = new JsonWriter(mode === 'schema').write(value)
  // Every UTF-16 unit is at least one byte, so short texts need no second look.
  if (text.length * 3 > MAX_PAYLOAD_BYTES && utf8Length(text) > MAX_PAYLOAD_BYTES) {
    throw new PayloadTooLargeError(MAX_PAYLOAD_BYTES)
  }
  return text
}

/** Walks one value. `#keys` holds a key for each open container; it is the path when something is refused. */
class JsonWriter {
  readonly #withSchema: boolean
  readonly #keys: (string | number)[] = []
  readonly #open: object[] = []
  #depth = 0
  #budget = MAX_PAYLOAD_BYTES
  #dropped = 0

  constructor(withSchema: boolean) {
    this.#withSchema = withSchema
  }

  write(value: unknown): string {
    try {
      return this.#value(value) ?? this.#refuse('undefined is not a JSON value')
    } catch (error) {
      if (error instanceof InvalidPayloadError || error instanceof PayloadTooLargeError) throw error
      return this.#refuse('reading it threw an error', error)
    }
  }

  /** Undefined when there is nothing to write, which only an object property may be. */
  #value(value: unknown): string | undefined {
    switch (typeof value) {
      case 'string':
        return this.#string(value, 'the string')
      case 'number':
        if (!Number.isFinite(value)) this.#refuse(`${value} is not a JSON value`)
        return this.#take(`${value}`)
      case 'boolean':
        return this.#take(value ? 'true' : 'false')
      case 'object':
        if (value === null) return this.#take('null')
        return this.#withSchema ? this.#instance(value) : this.#plain(value)
      case 'undefined':
        return undefined
      default:
        return this.#refuse(`a ${typeof value} is not a JSON value`)
    }
  }

  #string(text: string, what: string): string {
    if (!NEEDS_CARE.test(text)) return this.#take(`"${text}"`)
    if (text.includes('\0')) this.#refuse(`${what} holds U+0000, which databases reject`)
    if (!isWellFormed(text)) this.#refuse(`${what} holds half a surrogate pair, which databases reject`)
    return this.#take(JSON.stringify(text))
  }

  #key(key: string): string {
    const known = KEYS.get(key)
    if (known !== undefined) return this.#take(known)
    const quoted = `${this.#string(key, 'the key')}:`
    if (key.length <= LONGEST_KNOWN_KEY && KEYS.size < MOST_KNOWN_KEYS) KEYS.set(key, quoted)
    return quoted
  }

  #plain(object: object): string {
    if (Array.isArray(object)) return this.#array(object)
    if (isPlainObject(object)) return this.#object(object)
    const hint =
      'without a schema only JSON values are accepted: give the event a schema, or convert the value'
    return this.#refuse(`${kindOf(object)}; ${hint}`)
  }

  #instance(object: object): string | undefined {
    if (ArrayBuffer.isView(object)) this.#refuseKind(kindOf(object))
    if ('toJSON' in object && typeof object.toJSON === 'function') {
      const result = this.#callToJson(object as { toJSON(key: string): unknown })
      // As in JSON.stringify, toJSON of the result is not asked again.
      return typeof result === 'object' && result !== null ? this.#container(result) : this.#value(result)
    }
    return this.#container(object)
  }

  #container(object: object): string {
    if (Array.isArray(object)) return this.#array(object)
    if (isPlainObject(object)) return this.#object(object)
    const refused = refusedKind(object)
    if (refused !== undefined) this.#refuseKind(refused)
    const text = this.#object(object)
    this.#refuseHidden(object, text === '{}')
    return text
  }

  #callToJson(object: { toJSON(key: string): unknown }): unknown {
    if (kindOf(object) === 'a Date' && Number.isNaN(Number(object))) this.#refuse('the Date is invalid')
    try {
      return object.toJSON(this.#depth === 0 ? '' : String(this.#keys[this.#depth - 1]))
    } catch (error) {
      return this.#refuse('its toJSON() threw an error', error)
    }
  }

  #array(array: readonly unknown[]): string {
    this.#enter(array)
    const at = this.#depth - 1
    const length = array.length
    let text = '['
    for (let i = 0; i < length; i++) {
      this.#keys[at] = i
      const item = this.#value(array[i])
      if (item === undefined)
        this.#refuse(i in array ? 'undefined is not a JSON value' : 'the array has a hole')
      text += i === 0 ? item : `,${item}`
      this.#budget--
    }
    this.#leave()
    return `${text}]`
  }

  #object(object: object): string {
    this.#enter(object)
    const at = this.#depth - 1
    let text = ''
    for (const key of Object.keys(object)) {
      this.#keys[at] = key
      const value: unknown = (object as Record<string, unknown>)[key]
      if (typeof value === 'function' && key === 'toJSON') this.#refuseToJson()
      const item = this.#value(value)
      if (item === undefined) this.#drop()
      else text += `${text === '' ? '{' : ','}${this.#key(key)}${item}`
    }
    this.#leave()
    return text === '' ? '{}' : `${text}}`
  }

  #enter(container: object): void {
    for (let i = this.#depth - 1; i >= 0; i--) {
      if (this.#open[i] === container) this.#refuse('the value contains itself')
    }
    if (this.#depth === MAX_PAYLOAD_DEPTH)
      this.#refuse(`it is nested deeper than ${MAX_PAYLOAD_DEPTH} levels`)
    this.#open[this.#depth++] = container
    this.#budget -= 2
    if (this.#budget < 0) throw new PayloadTooLargeError(MAX_PAYLOAD_BYTES)
  }

  #leave(): void {
    this.#depth--
  }

  /** Counts what is written against the limit, so that a small graph that unfolds into gigabytes ends early. */
  #take(text: string): string {
    this.#budget -= text.length
    if (this.#budget < 0) throw new PayloadTooLargeError(MAX_PAYLOAD_BYTES)
    return text
  }

  #drop(): void {
    if (++this.#dropped > MAX_DROPPED) throw new PayloadTooLargeError(MAX_PAYLOAD_BYTES)
  }

  /** A plain object with toJSON wants to be something else in JSON: the path is the object's. */
  #refuseToJson(): never {
    this.#leave()
    return this.#refuse('it has a toJSON(): give the event a schema, or convert the value')
  }

  /** Refuses an instance with data in private fields, or an iterable instance without properties. */
  #refuseHidden(instance: object, isEmpty: boolean): void {
    const name = hiddenProperty(instance, isEmpty)
    if (name !== undefined) {
      this.#refuse(`a class instance whose ${quoteText(name, 40)} JSON would lose: give the class a toJSON()`)
    }
    if (isEmpty && Symbol.iterator in instance) {
      this.#refuse('a class instance whose elements JSON would lose: give the class a toJSON()')
    }
  }

  #refuseKind(kind: string): never {
    return this.#refuse(`${kind} has no JSON form: convert the value`)
  }

  #refuse(reason: string, thrown?: unknown): never {
    throw new InvalidPayloadError(formatPath(this.#keys.slice(0, this.#depth)), reason, { thrown })
  }
}
