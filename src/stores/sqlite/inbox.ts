import type { Names } from './names.js'

export function inboxStatements(names: Names) {
  return {
    // A concurrent one with the same key holds the write lock, so that it has ended when this one is run.
    mark: `
insert into ${names.inbox} (handler, event_id) values (:handler, :eventId)
on conflict (handler, event_id) do nothing returning 1`,
    contains: `select 1 from ${names.inbox} where handler = :handler and event_id = :eventId`,
  }
}
