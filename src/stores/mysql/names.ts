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
  /** The procedure by which SQL publishes. */
  readonly publish: string
  /** Prefix of index and constraint names, unquoted. */
  readonly index: string
}

const STRICT = /^[a-z_][a-z0-9_]{0,39}$/

/** Only plain lower-case identifiers are accepted, and they are quoted all the same. */
export function namesOf(options: { database?: string | undefined; table?: string | undefined }): Names {
  const table = checked('table', options.table ?? 'outbox_event')
  const prefix = options.database === undefined ? '' : `\`${checked('database', options.database)}\`.`
  return {
    events: `${prefix}\`${table}\``,
    instances: `${prefix}\`${table}_instance\``,
    pauses: `${prefix}\`${table}_pause\``,
    inbox: `${prefix}\`${table}_inbox\``,
    migrations: `${prefix}\`${table}_migration\``,
    publish: `${prefix}\`${procedureOf(table)}\``,
    index: table,
  }
}

/** A table named `outbox` must not share it with the default one. */
function procedureOf(table: string): string {
  if (table === 'outbox_event') return 'outbox_publish'
  return table === 'outbox' ? 'outbox_outbox_publish' : `${table}_publish`
}

function checked(setting: string, value: string): string {
  if (typeof value === 'string' && STRICT.test(value)) return value
  throw new InvalidSettingError(
    setting,
    'must be a lower-case identifier of at most 40 letters, digits and underscores',
  )
}
