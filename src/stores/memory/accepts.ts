import { excludesAll, type TypeFilter } from '../../store.js'

/** What of a row decides whether an instance can take it. */
export interface Routed {
  readonly aggregateType: string
  readonly eventType: string
  readonly version: number
}

const SEPARATOR = '\u001f'

/**
 * Whether a filter accepts a row: a name that lists its type, alone or with its aggregate type, must know the
 * version; only a type that no name lists can be accepted by a prefix, whatever its version. What is excepted is not
 * accepted at all.
 */
export function compileFilter(filter: TypeFilter): (row: Routed) => boolean {
  const newest = new Map<string, number>()
  for (const [index, name] of filter.names.entries()) {
    newest.set(name, Math.max(newest.get(name) ?? 0, filter.versions[index] ?? 0))
  }
  if (excludesAll(filter)) return () => false
  const except = new Set(filter.excludedTypes)
  return (row) => {
    if (except.has(row.eventType)) return false
    const plain = newest.get(row.eventType)
    const bound = newest.get(row.aggregateType + SEPARATOR + row.eventType)
    if (plain === undefined && bound === undefined) {
      const name = row.aggregateType + SEPARATOR + row.eventType
      return filter.prefixes.some((prefix) =>
        (prefix.includes(SEPARATOR) ? name : row.eventType).startsWith(prefix),
      )
    }
    return row.version <= Math.max(plain ?? 0, bound ?? 0)
  }
}
