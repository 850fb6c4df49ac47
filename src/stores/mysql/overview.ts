import { leasesByInstance, MOST_TYPES } from '../../diagnosis.js'
import type { StoreOverview } from '../../store.js'
import type { Query } from './driver.js'
import type { Names } from './names.js'
import { NEVER } from './schema.js'

const NOW = 'utc_timestamp(6)'

const epochMs = (column: string) => `timestampdiff(microsecond, '1970-01-01', ${column}) / 1000`

/** What is pending or dead, one source a branch; what is done is in none of them. */
export function pendingSources({ events, index }: Names): readonly string[] {
  return [
    `${events} force index (${index}_fresh) where fresh = 1`,
    `${events} force index (${index}_timed) where timed_at <= ${NEVER}`,
    `${events} force index (${index}_ordered) where pending_key > '' and status in (0, 2)`,
  ]
}

export function overviewStatements(names: Names) {
  const due = 'greatest(available_at, created_at)'
  const types = (from: string) => `
  select event_type, sum(status <> 3) as pending, sum(status = 3) as dead,
    min(if(status <> 3 and ${due} <= ${NOW}, ${due}, null)) as due from ${from} group by event_type`
  const leases = (from: string) =>
    `select locked_by, count(*) as n from ${from} and status <> 3 and locked_until > ${NOW} group by locked_by`
  const all = (select: (from: string) => string) => pendingSources(names).map(select).join(' union all ')
  return {
    types: `
select event_type, sum(pending), sum(dead), coalesce(${epochMs(NOW)} - ${epochMs('min(due)')}, 0)
  from (${all(types)}) found
 group by event_type order by sum(pending) desc, event_type limit ${MOST_TYPES}`,
    leases: `select locked_by, sum(n) from (${all(leases)}) found where locked_by is not null group by locked_by`,
  }
}

/** Inside a transaction. */
export async function overview(
  sql: ReturnType<typeof overviewStatements>,
  query: Query,
): Promise<StoreOverview> {
  const types = (await query(sql.types, [])).rows
  const leases = (await query(sql.leases, [])).rows
  return {
    types: types.map((row) => ({
      eventType: row[0] as string,
      pending: Number(row[1]),
      dead: Number(row[2]),
      oldestLagMs: Math.max(0, Math.round(Number(row[3]))),
    })),
    leases: leasesByInstance(leases.map((row) => [row[0] as string, Number(row[1])])),
  }
}
