import { InvalidSettingError } from '../../core/errors.js'

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

const STRICT = /^[a-z_][a-z0-9_]{0,39}$/

/** Only plain lower-case identifiers are accepted, and they are quoted all the same. */
export function namesOf(options: { table?: string | undefined }): Names {
  const table = checked('table', options.table ?? 'outbox_event')
  return {
    events: `"${table}"`,
    instances: `"${table}_instance"`,
    pauses: `"${table}_pause"`,
    inbox: `"${table}_inbox"`,
    migrations: `"${table}_migration"`,
    table,
  }
}

function checked(setting: string, value: string): string {
  if (typeof value === 'string' && STRICT.test(value) && !value.startsWith('sqlite_')) return value
  throw new InvalidSettingError(
    setting,
    'must be a lower-case identifier of at most 40 letters, digits and underscores that does not begin with sqlite_',
  )
}
