/** An error and what caused it, the outermost first. ORMs and drivers wrap each other's errors. */
export function causesOf(error: unknown): object[] {
  const found: object[] = []
  for (let cause = error; typeof cause === 'object' && cause !== null && found.length < 10; ) {
    found.push(cause)
    cause = (cause as { readonly cause?: unknown }).cause
  }
  return found
}
