import type { TypeFilter } from '../../store.js'
import type { Param } from './driver.js'

/** A condition on a row, and the parameters of its question marks in their order. */
export interface Condition {
  readonly sql: string
  readonly params: readonly Param[]
}

const SEPARATOR = '\x1f'
const NEVER: Condition = { sql: 'false', params: [] }
const ALWAYS: Condition = { sql: 'true', params: [] }

/**
 * A name that lists the row's type, alone or with its aggregate type, must know the version; only a type that no name
 * lists can be accepted by a prefix. Never null.
 */
export function accepts(filter: TypeFilter): Condition {
  const excepted = filter.excludedTypes ?? []
  if (excepted.length === 0) return knows(filter)
  const rest = knows(filter)
  return {
    sql: `event_type not in (${marks(excepted)}) and ${rest.sql}`,
    params: [...excepted, ...rest.params],
  }
}

/** Without regard to what is paused. */
export function knows({ names, versions, prefixes }: TypeFilter): Condition {
  const newest = new Map<string, number>()
  for (const [at, name] of names.entries()) {
    newest.set(name, Math.max(newest.get(name) ?? 0, versions[at] ?? 0))
  }
  const listed = [...newest]
  if (listed.length === 0 && prefixes.includes('')) return ALWAYS
  const plain = listed.filter(([name]) => !name.includes(SEPARATOR))
  const bound = listed.filter(([name]) => name.includes(SEPARATOR))
  const unlisted = all([not(listing(TYPE, plain)), not(listing(BOUND, bound)), beginning(prefixes)])
  return any([version(TYPE, plain), version(BOUND, bound), unlisted])
}

/** What a name is compared with: the type, or the aggregate type and the type. */
const TYPE: Condition = { sql: 'event_type', params: [] }
const BOUND: Condition = { sql: 'concat(aggregate_type, ?, event_type)', params: [SEPARATOR] }

type Listed = readonly (readonly [name: string, version: number])[]

function version(subject: Condition, listed: Listed): Condition {
  if (listed.length === 0) return NEVER
  const cases = listed.map(() => 'when ? then ?').join(' ')
  return {
    sql: `version <= case ${subject.sql} ${cases} else -1 end`,
    params: [...subject.params, ...listed.flat()],
  }
}

function listing(subject: Condition, listed: Listed): Condition {
  if (listed.length === 0) return NEVER
  const names = listed.map(([name]) => name)
  return { sql: `${subject.sql} in (${marks(names)})`, params: [...subject.params, ...names] }
}

function beginning(prefixes: readonly string[]): Condition {
  if (prefixes.includes('')) return ALWAYS
  return any(
    prefixes.map((prefix) => {
      const subject = prefix.includes(SEPARATOR) ? BOUND : TYPE
      return { sql: `left(${subject.sql}, char_length(?)) = ?`, params: [...subject.params, prefix, prefix] }
    }),
  )
}

export function not({ sql, params }: Condition): Condition {
  return { sql: `not (${sql})`, params }
}

function any(conditions: readonly Condition[]): Condition {
  return joined(conditions, ' or ', NEVER)
}

function all(conditions: readonly Condition[]): Condition {
  return joined(conditions, ' and ', ALWAYS)
}

function joined(conditions: readonly Condition[], by: string, otherwise: Condition): Condition {
  if (conditions.length === 0) return otherwise
  return {
    sql: `(${conditions.map(({ sql }) => sql).join(by)})`,
    params: conditions.flatMap(({ params }) => params),
  }
}

function marks(values: readonly unknown[]): string {
  return values.map(() => '?').join(', ')
}
