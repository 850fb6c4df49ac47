import { InvalidSettingError } from '../../core/errors.js'
import { type CoreConnection, ignore, type Row, send } from './driver.js'

/** What is asked once of every connection, before anything is written on it. */
export interface Session {
  /** A lock that was not to be had in time rolls back everything, and not only the statement. */
  readonly rollsBackOnTimeout: boolean
}

export const CHECKED_VARIABLES =
  '@@character_set_client, @@character_set_connection, @@character_set_results, @@sql_mode, @@sql_select_limit >= 4294967295'

const sessions = new WeakMap<CoreConnection, Session>()

/** Throws when texts would not arrive as they are. */
export async function sessionOf(connection: CoreConnection): Promise<Session> {
  const known = sessions.get(connection)
  if (known) return known
  connection.on('error', ignore)
  try {
    const { rows } = await send(connection, `select ${CHECKED_VARIABLES}, @@innodb_rollback_on_timeout`)
    const row = rows[0] ?? []
    checkSession(row, connection.clientEncoding)
    const session = { rollsBackOnTimeout: Number(row[5]) === 1 }
    sessions.set(connection, session)
    return session
  } finally {
    connection.removeListener('error', ignore)
  }
}

/** Throws when values of these variables would change what is written or read. */
export function checkSession(row: Row, encoding?: string): void {
  checkCharsets(row, encoding)
  if (Number(row[4]) !== 1) {
    throw new InvalidSettingError(
      'sql_select_limit',
      "must not limit the pool's connections: queries would return too few rows. Remove the statement that sets it",
    )
  }
  if (!String(row[3]).split(',').includes('EMPTY_STRING_IS_NULL')) return
  throw new InvalidSettingError(
    'sql_mode',
    "must not contain EMPTY_STRING_IS_NULL for the pool's connections: empty texts would be lost",
  )
}

/** In another character set question marks would be written for what that one lacks. Null: sent as it is stored. */
function checkCharsets([client, connection, results]: Row, encoding?: string): void {
  const other = [client, connection, results ?? 'utf8mb4'].find((charset) => charset !== 'utf8mb4')
  if (other === undefined && (encoding ?? 'utf8') === 'utf8') return
  throw new InvalidSettingError(
    'charset',
    `must be utf8mb4 for the pool's connections, and is ${other ?? encoding}`,
  )
}
