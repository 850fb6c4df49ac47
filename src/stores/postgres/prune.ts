import { type Query, statement } from './driver.js'
import type { Names } from './names.js'

export function pruneStatements(names: Names) {
  return {
    done: statement(`
with gone as (
  delete from ${names.events} where ctid = any(array(
    select ctid from ${names.events}
     where status = 1 and created_at < now() - $1::float8 * interval '1 ms'
       and done_at < now() - $1::float8 * interval '1 ms' limit $2::int for update skip locked))
  returning 1)
select count(*) from gone`),
  }
}

type Statements = ReturnType<typeof pruneStatements>

export async function pruneDone(
  sql: Statements,
  query: Query,
  olderThanMs: number,
  limit: number,
): Promise<number> {
  const [row] = await query(sql.done, [olderThanMs, limit])
  return Number(row?.[0] ?? 0)
}
