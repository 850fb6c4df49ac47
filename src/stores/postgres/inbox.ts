import { statement } from './driver.js'
import type { Names } from './names.js'

export function inboxStatements(names: Names) {
  return {
    // A concurrent one with the same key is waited for; if it rolls back, this one is the first.
    mark: statement(`
insert into ${names.inbox} (handler, event_id) values ($1::text, $2::text)
on conflict (handler, event_id) do nothing returning 1`),
    contains: statement(`select 1 from ${names.inbox} where handler = $1::text and event_id = $2::text`),
    prune: statement(`
with gone as (
  delete from ${names.inbox} where ctid = any(array(
    select ctid from ${names.inbox} where processed_at < now() - $1::float8 * interval '1 ms'
     limit $2::int for update skip locked))
  returning 1)
select count(*) from gone`),
  }
}
