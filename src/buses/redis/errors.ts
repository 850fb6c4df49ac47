/** Error codes of Redis that are not caused by a single message. */
const UNAVAILABLE = new Set([
  ...['LOADING', 'READONLY', 'MISCONF', 'OOM', 'CLUSTERDOWN', 'MASTERDOWN', 'NOREPLICAS', 'BUSY', 'TRYAGAIN'],
  ...['NOAUTH', 'NOPERM', 'WRONGPASS', 'WRONGTYPE', 'NOGROUP', 'UNKILLABLE'],
])

/** Redis starts an error with a code in capital letters. Errors of a client without such a code concern the connection. */
export function isUnavailable(error: unknown): boolean {
  if (!(error instanceof Error) || error instanceof TypeError || error instanceof RangeError) return false
  const code = codeOf(error)
  return code === undefined || UNAVAILABLE.has(code)
}

/** Returns the code at the start of an error message of Redis, for example `WRONGTYPE`. */
export function codeOf(error: unknown): string | undefined {
  return error instanceof Error ? /^-?([A-Z][A-Z0-9_]+)(?: |$)/.exec(error.message)?.[1] : undefined
}
