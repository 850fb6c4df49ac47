import { textIn } from '../../core/columns.js'
import type { Connection } from './driver.js'
import type { Names } from './names.js'

export function pauseStatements(names: Names) {
  return {
    paused: `select event_type from ${names.pauses} order by event_type`,
    pause: `insert into ${names.pauses} (event_type) values (:type) on conflict (event_type) do nothing`,
    resume: `delete from ${names.pauses} where event_type = :type returning 1`,
  }
}

export function paused(sql: ReturnType<typeof pauseStatements>, db: Connection): readonly string[] {
  return db.all(sql.paused).map((row) => textIn(row.event_type))
}
