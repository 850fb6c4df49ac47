/** Other writers may have put anything into a column: what cannot be read counts as absent, and stops nobody. */
export function objectIn(text: unknown): Record<string, never> | null {
  const value = valueIn(text)
  return isObject(value) ? (value as Record<string, never>) : null
}

export function listIn(text: unknown): readonly unknown[] {
  const value = valueIn(text)
  return Array.isArray(value) ? value : NOTHING
}

export function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

const NOTHING: readonly unknown[] = []

function valueIn(text: unknown): unknown {
  if (typeof text !== 'string') return null
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}
