import { textIn } from '../../core/columns.js'
import { leasesByInstance, MOST_TYPES } from '../../diagnosis.js'
import type { StoreOverview } from '../../store.js'
import type { Connection } from './driver.js'
import type { Names } from './names.js'
import { FRESH, indexesOf, LEASED, NOW, ORDERED, TIMED } from './schema.js'

export function overviewStatements(names: Names) {
  const index = indexesOf(names)
  const due = 'max(available_at, created_at)'
  const pendingKey = `${ORDERED} and status in (0, 2)`
  const types = (by: string, where: string) => `
  select event_type, sum(status <> 3) as pending, sum(status = 3) as dead,
    min(iif(status <> 3 and ${due} <= ${NOW}, ${due}, null)) as due
    from ${names.events} indexed by ${by} where ${where} group by event_type`
  const leases = (by: string, where: string) => `
  select locked_by, count(*) as n from ${names.events} indexed by ${by}
   where ${where} and status in (0, 2) and locked_until > ${NOW} group by locked_by`
  return {
    types: `
select event_type, sum(pending) as pending, sum(dead) as dead, coalesce(max(0, ${NOW} - min(due)), 0) as lag
  from (${types(index.fresh, FRESH)} union all ${types(index.timed, TIMED)}
    union all ${types(index.ordered, pendingKey)})
 group by event_type order by sum(pending) desc, event_type limit ${MOST_TYPES}`,
    leases: `
select locked_by, sum(n) as n
  from (${leases(index.leased, LEASED)} union all ${leases(index.ordered, pendingKey)})
 where locked_by is not null group by locked_by`,
  }
}

export function overview(sql: ReturnType<typeof overviewStatements>, db: Connection): StoreOverview {
  return {
    types: db.all(sql.types).map((row) => ({
      eventType: textIn(row.event_type),
      pending: Number(row.pending),
      dead: Number(row.dead),
      oldestLagMs: Number(row.lag),
    })),
    leases: leasesByInstance(
      db.all(sql.leases).map((row) => [textIn(row.locked_by), Number(row.n)] as const),
    ),
  }
}
