import { duration } from '../../core/duration.js'
import { type CheckResult, ok, problem, shown, some, warning } from '../../diagnosis.js'
import { milliseconds, type Query, statement } from './driver.js'
import type { Names } from './names.js'

const MEGABYTE = 1_048_576

const LIMITS = {
  /** More dead row versions than that, and more than half as many as live ones: vacuum does not keep up. */
  dead: 50_000,
  /** An index of that size that has so much room for each entry is mostly empty. */
  indexBytes: 64 * MEGABYTE,
  bytesAnEntry: 400,
}

const table = statement(`
select coalesce(s.n_live_tup, 0), coalesce(s.n_dead_tup, 0), pg_total_relation_size(c.oid),
  ${milliseconds('clock_timestamp() - greatest(s.last_autovacuum, s.last_vacuum)')},
  (current_setting('autovacuum')::boolean and current_setting('track_counts')::boolean)::int,
  (select count(*) from pg_options_to_table(c.reloptions)
    where option_name = 'autovacuum_enabled' and not option_value::boolean)
  from pg_class c left join pg_stat_all_tables s on s.relid = c.oid where c.oid = to_regclass($1::text)`)

const indexes = statement(`
select quote_ident(c.relname), pg_relation_size(c.oid) from pg_index i join pg_class c on c.oid = i.indexrelid
 where i.indrelid = to_regclass($1::text) and c.reltuples >= 0 and pg_relation_size(c.oid) > $2::float8
   and pg_relation_size(c.oid) > c.reltuples * $3::float8 order by 2 desc`)

export async function vacuumCheck(query: Query, { events }: Names, limits = LIMITS): Promise<CheckResult> {
  const [row = []] = await query(table, [events])
  const [live = 0, dead = 0, bytes = 0] = row.slice(0, 3).map(Number)
  const last = row[3] === null ? 'never vacuumed' : `vacuumed ${duration(Math.max(0, Number(row[3])))} ago`
  const says = `${live} live and ${dead} dead row versions in ${megabytes(bytes)}, ${last}.`
  if (Number(row[4]) === 0) {
    return problem(
      `Autovacuum is off on this server. ${says}`,
      'ALTER SYSTEM SET autovacuum = on; ALTER SYSTEM SET track_counts = on; SELECT pg_reload_conf();',
    )
  }
  if (Number(row[5]) > 0) {
    return problem(
      `Autovacuum is off for the events table. ${says}`,
      `ALTER TABLE ${events} RESET (autovacuum_enabled);`,
    )
  }
  if (dead > limits.dead && dead > live / 2) {
    return warning(
      `Vacuum does not keep up: ${says}`,
      `See what holds it back under "long transactions", then: VACUUM (VERBOSE) ${events};`,
    )
  }
  const bloated = await query(indexes, [events, limits.indexBytes, limits.bytesAnEntry])
  if (bloated.length > 0) {
    const names = bloated.map(([name, size]) => `${shown(String(name))} (${megabytes(Number(size))})`)
    return warning(
      `Indexes that are mostly empty: ${some(names)}. ${says}`,
      bloated.map(([name]) => `REINDEX INDEX CONCURRENTLY ${inSchemaOf(events, String(name))};`).join(' '),
    )
  }
  return ok(says)
}

/** The index of a table lies in the table's schema. Its name is quoted already. */
export function inSchemaOf(events: string, index: string): string {
  return events.slice(0, events.indexOf('.') + 1) + shown(index)
}

function megabytes(bytes: number): string {
  return `${(bytes / MEGABYTE).toFixed(bytes < 10 * MEGABYTE ? 1 : 0)} MB`
}
