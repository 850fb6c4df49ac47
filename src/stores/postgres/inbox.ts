import { statement } from './driver.js'
import type { Names } from './names.js'

export function inboxStatements(names: Names) {
  return {
    // A concurrent one with the same key is waited for; if it rolls back, this one is the first.
    mark: statement(`
insert into ${names.inbox} (handler, event_id) values ($1::text, $2::text)
on conflict (handler, event_id) do nothing returning 1`),
    contains: statement(`select 1 from ${names.inbox} where handler = $1::text and event_id = $2::text`),
  }
}
