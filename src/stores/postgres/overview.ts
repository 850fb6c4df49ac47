import { leasesByInstance, MOST_TYPES } from '../../diagnosis.js'
import type { StoreOverview } from '../../store.js'
import { type PostgresDriver, type Query, statement } from './driver.js'
import type { Names } from './names.js'
import { FRESH, ORDERED, TIMED } from './schema.js'

/** Also where nobody has gathered statistics yet: what is done is never looked at. */
const byIndex = statement(`select set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)`)

export function overviewStatements({ events }: Names) {
  const due = 'greatest(available_at, created_at)'
  const oldest = `min(${due}) filter (where status <> 3 and ${due} <= clock_timestamp())`
  const types = (where: string) => `
  select event_type, count(*) filter (where status <> 3) as pending, count(*) filter (where status = 3) as dead,
    ${oldest} as due from ${events} where ${where} group by event_type`
  const leases = (where: string) => `
  select locked_by, count(*) as n from ${events}
   where ${where} and status <> 3 and locked_until > clock_timestamp() group by locked_by`
  const pendingKey = `${ORDERED} and status in (0, 2)`
  return {
    types: statement(`
select event_type, sum(pending), sum(dead),
  coalesce(greatest(0, date_part('epoch', clock_timestamp() - min(due))) * 1000, 0)
  from (${types(FRESH)} union all ${types(TIMED)} union all ${types(pendingKey)}) found
 group by event_type order by sum(pending) desc, event_type limit ${MOST_TYPES}`),
    leases: statement(
      `select locked_by, sum(n) from (${leases(FRESH)} union all ${leases(TIMED)} union all ${leases(pendingKey)}) found
 where locked_by is not null group by locked_by`,
    ),
  }
}

/** In a transaction of its own, so that it neither holds up the outbox's connections nor leaves settings behind. */
export function overview<Client>(
  sql: ReturnType<typeof overviewStatements>,
  driver: PostgresDriver<Client>,
): Promise<StoreOverview> {
  return driver.transaction(async ({ client }) => {
    const query: Query = (text, params) => driver.queryOn(client, text, params)
    await query(byIndex, [])
    const types = await query(sql.types, [])
    const leases = await query(sql.leases, [])
    return {
      types: types.map((row) => ({
        eventType: row[0] as string,
        pending: Number(row[1]),
        dead: Number(row[2]),
        oldestLagMs: Number(row[3]),
      })),
      leases: leasesByInstance(leases.map((row) => [row[0] as string, Number(row[1])])),
    }
  })
}
