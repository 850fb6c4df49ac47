import { checkedIdentifier, publishRoutineOf } from '../../core/identifier.js'

/** Quoted names of everything the store owns in the database. */
export interface Names {
  readonly events: string
  readonly sequence: string
  readonly instances: string
  /** Event types that are paused. */
  readonly pauses: string
  /** What handlers have processed. */
  readonly inbox: string
  readonly migrations: string
  /** Stretches of the sequence that an instance has claimed as a whole. */
  readonly ranges: string
  /** Counts them. */
  readonly rangeCount: string
  /** The function that tells which those are, and the one that adds to them. */
  readonly rangesTaken: string
  readonly takeRange: string
  /** The function by which SQL publishes. */
  readonly publish: string
  /** Prefix of index names, unquoted. */
  readonly index: string
  /** The `schema` option; null if the search_path of each connection decides. */
  readonly schema: string | null
  readonly channel: string
}

export function namesOf(options: { schema?: string | undefined; table?: string | undefined }): Names {
  const table = checkedIdentifier('table', options.table ?? 'outbox_event')
  const schema = options.schema === undefined ? null : checkedIdentifier('schema', options.schema)
  return {
    ...qualifiedNames(table, schema === null ? '' : `"${schema}".`),
    index: table,
    schema,
    channel: schema === null ? table : `${schema}.${table}`.slice(0, 63),
  }
}

/** Names of the tables, sequences and functions, each with this prefix in front of it. */
export function qualifiedNames(table: string, prefix: string): Omit<Names, 'index' | 'schema' | 'channel'> {
  return {
    events: `${prefix}"${table}"`,
    sequence: `${prefix}"${table}_seq"`,
    instances: `${prefix}"${table}_instance"`,
    pauses: `${prefix}"${table}_pause"`,
    inbox: `${prefix}"${table}_inbox"`,
    migrations: `${prefix}"${table}_migration"`,
    ranges: `${prefix}"${table}_range"`,
    rangeCount: `${prefix}"${table}_range_seq"`,
    rangesTaken: `${prefix}"${table}_ranges_taken"`,
    takeRange: `${prefix}"${table}_take_range"`,
    publish: `${prefix}"${publishRoutineOf(table)}"`,
  }
}
