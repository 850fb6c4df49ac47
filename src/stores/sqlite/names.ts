import { checkedIdentifier } from '../../core/identifier.js'

/** Quoted names of everything the store owns in the database. */
export interface Names {
  readonly events: string
  readonly instances: string
  /** Event types that are paused. */
  readonly pauses: string
  /** What handlers have processed. */
  readonly inbox: string
  readonly migrations: string
  /** The events table unquoted: under this name SQLite counts its `seq`, and index names begin with it. */
  readonly table: string
}

export function namesOf(options: { table?: string | undefined }): Names {
  const table = checkedIdentifier('table', options.table ?? 'outbox_event', 'sqlite_')
  return {
    events: `"${table}"`,
    instances: `"${table}_instance"`,
    pauses: `"${table}_pause"`,
    inbox: `"${table}_inbox"`,
    migrations: `"${table}_migration"`,
    table,
  }
}
