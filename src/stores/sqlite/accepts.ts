import type { TypeFilter } from '../../store.js'
import type { Params } from './driver.js'

const MAX_VERSION = 2_147_483_647

/** Between an aggregate type and an event type. */
const BOUND = '\x1f'

/** The filter's names, in front of a statement's SELECT; each at most once. */
export const WITH_NAMES = `accepted(name, newest) as materialized (
    select cast(value ->> 0 as text), value ->> 1 from json_each(:names))`

/** To be joined to the events `e`, which stay in the order of their own index. */
export const JOIN_NAMES = 'left join accepted a on a.name = e.event_type'

const startsWith = (text: string) => `substr(${text}, 1, length(p.value)) = p.value`

/**
 * Whether the newest version accepted for the row, or -1, is at least its own. The sum makes a number of a version that
 * another writer wrote as text, which would be above every number. A version that is too large is accepted like version 0, so
 * that a claim finds the row and it becomes dead.
 */
export const ACCEPTED = `iif(e.version + 0 > ${MAX_VERSION}, 0, e.version + 0) <= coalesce(a.newest,
    (select newest from accepted where name = e.aggregate_type || char(31) || e.event_type),
    case when :everything = 1 or exists (select 1 from json_each(:prefixes) p
      where ${startsWith('e.event_type')} or ${startsWith('char(31) || e.aggregate_type || char(31) || e.event_type')})
      then ${MAX_VERSION} else -1 end)`

/** A paused type is a name of which no version is accepted, before any prefix. */
export function filterParams(filter: TypeFilter): Params {
  const newest = newestOf(filter)
  for (const type of filter.excludedTypes ?? []) newest.set(type, -1)
  return paramsOf(newest, filter.prefixes)
}

/** Without regard to what is paused. */
export function knownParams(filter: TypeFilter): Params {
  return paramsOf(newestOf(filter), filter.prefixes)
}

/** The first of equal names counts. */
function newestOf({ names, versions }: TypeFilter): Map<string, number> {
  const newest = new Map<string, number>()
  for (const [at, name] of names.entries()) if (!newest.has(name)) newest.set(name, versions[at] ?? -1)
  return newest
}

function paramsOf(newest: ReadonlyMap<string, number>, prefixes: readonly string[]): Params {
  return {
    names: JSON.stringify([...newest]),
    // With an aggregate type in front it must not be taken for the beginning of a type, nor the other way round.
    prefixes: JSON.stringify(prefixes.map((prefix) => (prefix.includes(BOUND) ? BOUND + prefix : prefix))),
    everything: prefixes.includes('') ? 1 : 0,
  }
}
