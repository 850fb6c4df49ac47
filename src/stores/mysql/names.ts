import { checkedIdentifier, publishRoutineOf } from '../../core/identifier.js'

/** Quoted names of everything the store owns in the database. */
export interface Names {
  readonly events: string
  readonly instances: string
  /** Event types that are paused. */
  readonly pauses: string
  /** What handlers have processed. */
  readonly inbox: string
  readonly migrations: string
  /** The procedure by which SQL publishes. */
  readonly publish: string
  /** Prefix of index and constraint names, unquoted. */
  readonly index: string
}

export function namesOf(options: { database?: string | undefined; table?: string | undefined }): Names {
  const table = checkedIdentifier('table', options.table ?? 'outbox_event')
  const prefix =
    options.database === undefined ? '' : `\`${checkedIdentifier('database', options.database)}\`.`
  return {
    events: `${prefix}\`${table}\``,
    instances: `${prefix}\`${table}_instance\``,
    pauses: `${prefix}\`${table}_pause\``,
    inbox: `${prefix}\`${table}_inbox\``,
    migrations: `${prefix}\`${table}_migration\``,
    publish: `${prefix}\`${publishRoutineOf(table)}\``,
    index: table,
  }
}
