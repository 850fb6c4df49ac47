import { microseconds } from './append.js'
import type { Query } from './driver.js'
import type { Names } from './names.js'

export function pruneStatements({ events, index }: Names) {
  return {
    old: `
select seq from ${events} force index (${index}_done)
 where done_at < utc_timestamp(6) - interval ? microsecond and status = 1
 order by done_at limit ? for update skip locked`,
    remove: `
delete e from json_table(?, '$[*]' columns (seq bigint unsigned path '$')) s
  straight_join ${events} e force index (primary) on e.seq = s.seq`,
  }
}

type Statements = ReturnType<typeof pruneStatements>

/** Inside a transaction. */
export async function pruneDone(
  sql: Statements,
  query: Query,
  olderThanMs: number,
  limit: number,
): Promise<number> {
  const { rows } = await query(sql.old, [microseconds(olderThanMs), String(limit)])
  if (rows.length === 0) return 0
  return (await query(sql.remove, [JSON.stringify(rows.map((row) => Number(row[0])))])).affected
}
