const REFUSED = new Set(
  (
    'Map Set WeakMap WeakSet WeakRef Promise RegExp Error ArrayBuffer SharedArrayBuffer DataView ' +
    'Boolean Number String BigInt Symbol Generator AsyncGenerator'
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

/** What the object is, for an error message: 'a Date', 'a Map', 'an Error', 'a class instance'. */
export function kindOf(value: object): string {
  const tag = tagOf(value)
  if (tag === 'Object' || !/^[A-Z][A-Za-z0-9]{0,30}$/.test(tag)) return 'a class instance'
  return /^[AEIO]/.test(tag) ? `an ${tag}` : `a ${tag}`
}

/** The kind of an object whose contents JSON would silently lose; undefined for the others. */
export function refusedKind(value: object): string | undefined {
  return REFUSED.has(tagOf(value)) || ArrayBuffer.isView(value) || value instanceof Error
    ? kindOf(value)
    : undefined
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
 * Name of a property that holds data of the instance and that JSON would lose: an accessor of its class (behind which data
 * in private fields may be), or an own property that is not enumerable. Undefined if there is none besides `known`.
 */
export function hiddenProperty(instance: object, known: ReadonlySet<string> = NONE): string | undefined {
  for (
    let at: object | null = instance;
    at !== null && !isObjectPrototype(at);
    at = Object.getPrototypeOf(at)
  ) {
    for (const [name, property] of Object.entries(Object.getOwnPropertyDescriptors(at))) {
      const isHidden =
        at === instance ? !property.enumerable && !isMethod(property) : property.get !== undefined
      if (isHidden && !known.has(name)) return name
    }
  }
  return undefined
}

const NONE: ReadonlySet<string> = new Set()

function isMethod(property: PropertyDescriptor): boolean {
  return typeof property.value === 'function'
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
