import { ignoreRejection } from './unknown.js'

const REFUSED = new Set(
  (
    'Map Set WeakMap WeakSet WeakRef Promise RegExp Error ArrayBuffer SharedArrayBuffer DataView ' +
    'Boolean Number String BigInt Symbol Generator AsyncGenerator Date Headers URLSearchParams FormData'
  ).split(' '),
)

/** An object literal: prototype `Object.prototype`, of this realm or another, or none. */
export function isPlainObject(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value)
  if (prototype === Object.prototype || prototype === null) return true
  return typeof prototype === 'object' && isObjectPrototype(prototype)
}

/** Whether the object is the `Object.prototype` of this realm or of another one. */
function isObjectPrototype(value: object): boolean {
  return (
    value === Object.prototype ||
    (Object.getPrototypeOf(value) === null && Object.hasOwn(value, 'isPrototypeOf'))
  )
}

/** Names the kind of an object for an error message: 'a Date', 'a Map', 'an Error', 'an Array Iterator', 'a class instance'. */
export function kindOf(value: object): string {
  const tag = tagOf(value)
  if (tag === 'Object' || !/^[A-Z][A-Za-z0-9]{0,30}( [A-Z][a-z]{0,30}){0,2}$/.test(tag))
    return 'a class instance'
  return /^[AEIO]/.test(tag) ? `an ${tag}` : `a ${tag}`
}

/** The kind of an object whose contents JSON would silently lose; undefined for the others. */
export function refusedKind(value: object): string | undefined {
  const tag = tagOf(value)
  const isRefused = REFUSED.has(tag) || / (Iterator|Helper)$/.test(tag)
  return isRefused || ArrayBuffer.isView(value) || value instanceof Error ? kindOf(value) : undefined
}

/**
 * Returns what a value is that cannot be read as an object of options, or undefined if it can be. Options are an object
 * literal, or an instance of a class that has one of the given names. All other objects hold their data elsewhere: the
 * entries of a `Map` or of `Headers` are no properties. An object that inherits from an object literal is refused, because
 * misspelled names are found among own properties only.
 */
export function refusedOptions(value: unknown, names?: Iterable<string>): string | undefined {
  if (value === null) return 'null'
  if (typeof value !== 'object') return `a ${typeof value}`
  if (Array.isArray(value)) return 'an array'
  if (isPlainObject(value)) return undefined
  const refused = refusedKind(value)
  if (refused !== undefined) return refused
  if (!Object.hasOwn(Object.getPrototypeOf(value), 'constructor')) {
    return 'an object that inherits from another object'
  }
  if (names === undefined) return undefined
  for (const name of names) if (name in value) return undefined
  return kindOf(value)
}

const getTime = Date.prototype.getTime
const typedArray = Object.getPrototypeOf(Uint8Array.prototype) as object
const typedArrayName = getterOf(typedArray, Symbol.toStringTag)
const typedArrayBytes = getterOf(typedArray, 'byteLength')

function getterOf(prototype: object, key: PropertyKey): (this: unknown) => unknown {
  return Object.getOwnPropertyDescriptor(prototype, key)?.get as (this: unknown) => unknown
}

/** Milliseconds of a Date, also of another realm, whatever its methods were replaced by. NaN for all other values. */
export function timeOf(value: unknown): number {
  try {
    return getTime.call(value as Date)
  } catch {
    return Number.NaN
  }
}

/** Whether the value is a Uint8Array, also of another realm. Never throws. */
export function isBytes(value: unknown): value is Uint8Array {
  return ArrayBuffer.isView(value) && typedArrayName.call(value) === 'Uint8Array'
}

/** Length in bytes, whatever a subclass says. */
export function byteLengthOf(bytes: Uint8Array): number {
  return typedArrayBytes.call(bytes) as number
}

/**
 * Returns the name of a property that holds data of the instance and that JSON would lose, or undefined. Private fields cannot
 * be seen, but a getter that reads them fails on a copy of the enumerable fields. A getter that works on the copy is derived
 * from these fields. An instance without any fields has its data elsewhere if it has a getter, or a property that is not
 * enumerable.
 *
 * @param known Names that are not data of the instance.
 */
export function hiddenProperty(
  instance: object,
  isEmpty: boolean,
  known: ReadonlySet<string> = NONE,
): string | undefined {
  const names = inheritedData(Object.getPrototypeOf(instance)).filter(
    (name) => !known.has(name) && !isEnumerable.call(instance, name),
  )
  if (isEmpty) return names[0] ?? hiddenField(instance, known)
  if (names.length === 0) return undefined
  const copy = copyOfFields(instance)
  return names.find((name) => !isReadable(copy, name) && isReadable(instance, name))
}

const isEnumerable = Object.prototype.propertyIsEnumerable

function copyOfFields(instance: object): object {
  const fields = Object.entries(Object.getOwnPropertyDescriptors(instance)).filter(
    ([, { enumerable }]) => enumerable,
  )
  return Object.create(Object.getPrototypeOf(instance), Object.fromEntries(fields)) as object
}

function isReadable(holder: object, name: string): boolean {
  try {
    ignoreRejection((holder as Readonly<Record<string, unknown>>)[name])
    return true
  } catch {
    return false
  }
}

const NONE: ReadonlySet<string> = new Set()
const inherited = new WeakMap<object, readonly string[]>()

/** Names of the accessors, and of enumerable values, of a prototype and of the prototypes that it inherits from. */
function inheritedData(prototype: object | null): readonly string[] {
  if (prototype === null || isObjectPrototype(prototype)) return []
  let names = inherited.get(prototype)
  if (!names) {
    const own = Object.entries(Object.getOwnPropertyDescriptors(prototype))
    const data = own.filter(([, { get, value, enumerable }]) =>
      get === undefined ? enumerable && value !== undefined && typeof value !== 'function' : true,
    )
    names = [...data.map(([name]) => name), ...inheritedData(Object.getPrototypeOf(prototype))]
    inherited.set(prototype, names)
  }
  return names
}

function hiddenField(instance: object, known: ReadonlySet<string>): string | undefined {
  for (const [name, property] of Object.entries(Object.getOwnPropertyDescriptors(instance))) {
    if (!property.enumerable && typeof property.value !== 'function' && !known.has(name)) return name
  }
  return undefined
}

/** Freezes plain objects and arrays, all the way down, and leaves every other object alone. Cycles are fine. */
export function deepFreeze<T>(value: T): T {
  const waiting: unknown[] = [value]
  let frozenBefore: Set<object> | undefined
  while (waiting.length > 0) {
    const next = waiting.pop()
    if (typeof next !== 'object' || next === null) continue
    if (!Array.isArray(next) && !isPlainObject(next)) continue
    if (Object.isFrozen(next)) {
      // Frozen by its owner at the top only, perhaps; each such object is entered once.
      frozenBefore ??= new Set()
      if (frozenBefore.has(next)) continue
      frozenBefore.add(next)
    } else Object.freeze(next)
    for (const child of Object.values(next)) {
      if (typeof child === 'object' && child !== null) waiting.push(child)
    }
  }
  return value
}

const DEEP = 100

/** The same, faster, for what JSON.parse() made: nothing in it is frozen, shared, or more than plain. */
export function freezeParsed<T>(value: T, depth = 0): T {
  if (typeof value !== 'object' || value === null) return value
  if (depth > DEEP) return deepFreeze(value)
  if (Array.isArray(value)) for (const child of value) freezeParsed(child, depth + 1)
  else {
    for (const key in value) {
      const child = value[key]
      if (typeof child === 'object' && Object.hasOwn(value, key)) freezeParsed(child, depth + 1)
    }
  }
  return Object.freeze(value)
}

function tagOf(value: object): string {
  return Object.prototype.toString.call(value).slice(8, -1)
}
