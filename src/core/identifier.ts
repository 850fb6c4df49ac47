import { InvalidSettingError } from './errors.js'

const STRICT = /^[a-z_][a-z0-9_]{0,39}$/

/** A name that stands in SQL: only plain lower-case ones are accepted, and they are quoted all the same. */
export function checkedIdentifier(setting: string, value: string, notBefore?: string): string {
  const isPlain = typeof value === 'string' && STRICT.test(value)
  if (isPlain && (notBefore === undefined || !value.startsWith(notBefore))) return value
  const but = notBefore === undefined ? '' : ` that does not begin with ${notBefore}`
  throw new InvalidSettingError(
    setting,
    `must be a lower-case identifier of at most 40 letters, digits and underscores${but}`,
  )
}

/** The function or procedure by which SQL publishes into a table; never the same for two tables. */
export function publishRoutineOf(table: string): string {
  if (table === 'outbox_event') return 'outbox_publish'
  return table === 'outbox' ? 'outbox_outbox_publish' : `${table}_publish`
}
