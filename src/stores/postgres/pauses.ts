import { statement } from './driver.js'
import type { Names } from './names.js'

export function pauseStatements(names: Names) {
  return {
    paused: statement(`select event_type from ${names.pauses} order by event_type`),
    pause: statement(
      `insert into ${names.pauses} (event_type) values ($1::text) on conflict (event_type) do nothing`,
    ),
    resume: statement(`delete from ${names.pauses} where event_type = $1::text returning 1`),
  }
}
