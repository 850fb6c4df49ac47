import { TransactionEndedError } from '../../core/errors.js'
import { microseconds, onlyInside } from './append.js'
import { isDuplicate, isNullIn, type Query } from './driver.js'
import type { Names } from './names.js'
import { EXACT } from './schema.js'

export function inboxStatements({ inbox, index }: Names) {
  return {
    mark: `insert into ${inbox} (handler, event_id) values (${onlyInside('?')}, ?)`,
    contains: `select 1 from ${inbox} where handler = ? and event_id = ?`,
    remove: `delete from ${inbox} where handler = ? and event_id = ?`,
    old: `
select handler, event_id from ${inbox} force index (${index}_inbox_age)
 where processed_at < utc_timestamp(6) - interval ? microsecond
 order by processed_at limit ? for update skip locked`,
    prune: `
delete i from json_table(?, '$[*]' columns (handler varchar(255) ${EXACT} path '$[0]',
    id varchar(255) ${EXACT} path '$[1]')) s
  straight_join ${inbox} i force index (primary) on i.handler = s.handler and i.event_id = s.id`,
  }
}

type Statements = ReturnType<typeof inboxStatements>

/** A concurrent one with the same key is waited for; if it rolls back, this one is the first. */
export async function markProcessed(
  sql: Statements,
  query: Query,
  handler: string,
  eventId: string,
): Promise<boolean> {
  try {
    const { inTransaction } = await query(sql.mark, [handler, eventId])
    if (inTransaction !== false) return true
  } catch (error) {
    // Only the statement was undone; the transaction goes on.
    if (isDuplicate(error)) return false
    if (isNullIn('handler', error)) throw new TransactionEndedError()
    throw error
  }
  // MySQL only: the transaction ended between our question and the statement, which then committed by itself.
  await query(sql.remove, [handler, eventId])
  throw new TransactionEndedError()
}

/** Inside a transaction. */
export async function pruneProcessed(
  sql: Statements,
  query: Query,
  olderThanMs: number,
  limit: number,
): Promise<number> {
  const { rows } = await query(sql.old, [microseconds(olderThanMs), String(limit)])
  if (rows.length === 0) return 0
  return (await query(sql.prune, [JSON.stringify(rows)])).affected
}
