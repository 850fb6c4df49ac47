import { leasesByInstance, MOST_TYPES } from '../../diagnosis.js'
import type { StoreOverview } from '../../store.js'
import { milliseconds, type PostgresDriver, type Query, statement } from './driver.js'
import type { Names } from './names.js'
import { FRESH, ORDERED, TIMED } from './schema.js'

/** Also where nobody has gathered statistics yet: what is done is never looked at, and what is pending never sorted. */
const byIndex = statement(
  `select ${['enable_seqscan', 'enable_sort', 'jit'].map((name) => `set_config('${name}', 'off', true)`).join(', ')}`,
)

/** Everything in one pass over what is pending or dead. Types first, then live leases by token. */
export function overviewStatement({ events, ranges }: Names, ranged: boolean) {
  const now = 'statement_timestamp()'
  const holder = `case when status <> 3 and locked_until > ${now} then locked_by end as holder`
  const due = 'greatest(available_at, created_at)'
  return statement(`
with found as materialized (
  select event_type, holder, count(*) as n, count(*) filter (where status = 3) as dead, min(due) as due from (
    select event_type, ${holder}, status, created_at as due from ${events} where ${FRESH}
    union all
    select event_type, ${holder}, status, case when ${due} <= ${now} then ${due} end from ${events} where ${TIMED}
    union all
    select event_type, ${holder}, status, case when ${due} <= ${now} then ${due} end from ${events}
     where ${ORDERED} and status in (0, 2)
  ) one group by event_type, holder
)
(select event_type, sum(n - dead), sum(dead),
  coalesce(greatest(0, ${milliseconds('clock_timestamp() - min(due)')}), 0)
  from found group by event_type order by 2 desc, event_type limit ${MOST_TYPES})
union all
select holder, sum(n), null, null from found where holder is not null group by holder${
    ranged
      ? `
union all
select token, (select count(*) from ${events} where ${FRESH} and seq between first_seq and last_seq and locked_until is null),
  null, null from ${ranges} where until > ${now}`
      : ''
  }`)
}

/** In a transaction of its own, so that it neither holds up the outbox's connections nor leaves settings behind. */
export async function overview<Client>(
  sql: ReturnType<typeof overviewStatement>,
  driver: PostgresDriver<Client>,
): Promise<StoreOverview> {
  const rows = await driver.transaction(async ({ client }) => {
    const query: Query = (text, params) => driver.queryOn(client, text, params)
    await query(byIndex, [])
    return query(sql, [])
  })
  const types = rows.filter((row) => row[2] !== null)
  const leases = rows.filter((row) => row[2] === null)
  return {
    types: types.map((row) => ({
      eventType: row[0] as string,
      pending: Number(row[1]),
      dead: Number(row[2]),
      oldestLagMs: Number(row[3]),
    })),
    leases: leasesByInstance(leases.map((row) => [row[0] as string, Number(row[1])])),
  }
}
