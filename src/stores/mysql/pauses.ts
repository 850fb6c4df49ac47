import type { Names } from './names.js'

export function pauseStatements({ pauses }: Names) {
  return {
    paused: `select event_type from ${pauses} order by event_type`,
    pause: `insert into ${pauses} (event_type) values (?) on duplicate key update paused_at = paused_at`,
    resume: `delete from ${pauses} where event_type = ?`,
  }
}
