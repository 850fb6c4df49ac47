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
  readonly channel: string
}

export function namesOf(options: { schema?: string | undefined; table?: string | undefined }): Names {
  const table = checkedIdentifier('table', options.table ?? 'outbox_event')
  const prefix = options.schema === undefined ? '' : `"${checkedIdentifier('schema', options.schema)}".`
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
    index: table,
    channel: options.schema === undefined ? table : `${options.schema}.${table}`.slice(0, 63),
  }
}
