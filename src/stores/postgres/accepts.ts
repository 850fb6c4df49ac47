import type { TypeFilter } from '../../store.js'
import type { Param } from './driver.js'

/** In the place of the version that all names share: every name is accepted; or they share none. */
const EVERY_NAME = -2
const NOT_SHARED = -1

/**
 * Whether the newest version accepted for the row, or -1, is at least its own. Four parameters from $n on: names,
 * versions, prefixes, and the version that all names share, which spares looking for it. Each list is split once per
 * statement, not once per row.
 */
export const accepts = (n: number) => {
  const list = (at: number, type: string) => `((select string_to_array($${at}::text, E'\\x1e'))::${type}[])`
  const limit = (key: string) => `${list(n + 1, 'int')}[array_position(${list(n, 'text')}, ${key})]`
  return `(version <= $${n + 3}::int and event_type = any(${list(n, 'text')}) or
    version <= coalesce(${limit('event_type')}, ${limit(`aggregate_type || E'\\x1f' || event_type`)},
    case when $${n + 3}::int = ${EVERY_NAME} or event_type ^@ any(${list(n + 2, 'text')})
      or (E'\\x1f' || aggregate_type || E'\\x1f' || event_type) ^@ any(${list(n + 2, 'text')}) then 2147483647 else -1 end))`
}

/** The same of a filter that is only names of one version. Two parameters from $n on. */
export const acceptsNames = (n: number) =>
  `version <= $${n + 1}::int and event_type = any((select string_to_array($${n}::text, E'\\x1e'))::text[])`

const SEPARATOR = '\x1e'
/** Between an aggregate type and an event type. */
const BOUND = '\x1f'

/** A paused type is a name of which no version is accepted; the first of equal names counts, before any prefix. */
export function filterParams(filter: TypeFilter): Param[] {
  if (!filter.excludedTypes || filter.excludedTypes.length === 0) return knownParams(filter)
  // What separates the names cannot be part of one.
  const paused = filter.excludedTypes.filter((type) => !type.includes(SEPARATOR))
  return knownParams({
    names: [...paused, ...filter.names],
    versions: [...paused.map(() => -1), ...filter.versions],
    prefixes: filter.prefixes,
  })
}

/** Of what `filterParams` returned, what `acceptsNames` needs; null when the filter is more than that. */
export function nameParams(params: readonly Param[]): Param[] | null {
  const [names, , prefixes, version] = params as [string, string, string, number]
  return version >= 0 && prefixes === '' && !names.includes(BOUND) ? [names, version] : null
}

/** Without regard to what is paused. */
export function knownParams(filter: TypeFilter): Param[] {
  return [
    filter.names.join(SEPARATOR),
    filter.versions.join(SEPARATOR),
    // With an aggregate type in front it must not be taken for the beginning of a type, nor the other way round.
    filter.prefixes.map((prefix) => (prefix.includes(BOUND) ? BOUND + prefix : prefix)).join(SEPARATOR),
    filter.prefixes.includes('') ? EVERY_NAME : sharedVersion(filter.versions),
  ]
}

function sharedVersion(versions: readonly number[]): number {
  const [first = NOT_SHARED] = versions
  return versions.every((version) => version === first) ? first : NOT_SHARED
}
