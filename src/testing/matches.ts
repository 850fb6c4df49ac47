/** Part of a payload: what is left out is not compared. Arrays are compared whole. */
export type Match<T> = T extends Date | Uint8Array | readonly unknown[]
  ? T
  : T extends object
    ? { readonly [Key in keyof T]?: Match<T[Key]> }
    : T

/** Whether `actual` contains everything that `expected` has, at any depth. */
export function matches(actual: unknown, expected: unknown): boolean {
  if (Object.is(actual, expected)) return true
  if (typeof actual !== 'object' || typeof expected !== 'object' || !actual || !expected) return false
  if (expected instanceof Date) return actual instanceof Date && actual.getTime() === expected.getTime()
  if (Array.isArray(expected) || ArrayBuffer.isView(expected)) return matchesList(actual, expected)
  if (Array.isArray(actual)) return false
  return Object.entries(expected).every(
    ([key, value]) => Object.hasOwn(actual, key) && matches(Reflect.get(actual, key), value),
  )
}

function matchesList(actual: object, expected: object): boolean {
  if (Object.getPrototypeOf(actual) !== Object.getPrototypeOf(expected)) return false
  const [list, wanted] = [actual, expected] as [ArrayLike<unknown>, ArrayLike<unknown>]
  if (list.length !== wanted.length) return false
  return Array.from(wanted).every((value, index) => matches(list[index], value))
}
