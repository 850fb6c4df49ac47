import type { InstanceRecord, SeenInstance } from '../../store.js'
import { milliseconds, type Query, statement } from './driver.js'
import type { Names } from './names.js'

/** Keeps the counters of instances that are long gone. */
const FORMER = '(former instances)'

/** `ranged`: the schema has ranges. */
export function registryStatements(names: Names, ranged: boolean) {
  const flag = ranged
    ? { column: ', ranges', value: ', true', update: ', ranges = true' }
    : { column: '', value: '', update: '' }
  return {
    heartbeat: statement(`
with beat as (insert into ${names.instances} (id, host, pid, version, handlers, accept, done, failed, dead${flag.column})
values ($1::text, $2::text, $3::int, $4::text, $5::text::json, $6::text::json, $7::bigint, $8::bigint, $9::bigint${flag.value})
on conflict (id) do update set handlers = excluded.handlers, accept = excluded.accept, done = excluded.done,
  failed = excluded.failed, dead = excluded.dead, last_seen_at = clock_timestamp(),
  stopped_at = case when $10::int = 1 then clock_timestamp() end${flag.update})
select event_type from ${names.pauses} order by event_type`),
    seen: statement(`
select id, host, pid, version, handlers::text, accept::text, done, failed, dead,
  ${milliseconds('started_at')}, ${milliseconds('last_seen_at')}, ${milliseconds('stopped_at')}
  from ${names.instances}
 where last_seen_at > clock_timestamp() - $1::float8 * interval '1 ms' and id <> '${FORMER}' order by started_at, id`),
    prune: statement(`
with gone as (
  delete from ${names.instances}
   where last_seen_at <= clock_timestamp() - $1::float8 * interval '1 ms' and id <> '${FORMER}'
  returning done, failed, dead
)
insert into ${names.instances} (id, host, pid, version, handlers, accept, done, failed, dead)
select '${FORMER}', '', 0, '', '{}', '{}', sum(done), sum(failed), sum(dead) from gone having count(*) > 0
on conflict (id) do update set done = ${names.instances}.done + excluded.done,
  failed = ${names.instances}.failed + excluded.failed, dead = ${names.instances}.dead + excluded.dead`),
  }
}

type Statements = ReturnType<typeof registryStatements>

export async function heartbeat(
  sql: Statements,
  query: Query,
  instance: InstanceRecord,
  stopped: boolean,
): Promise<readonly string[]> {
  const { id, host, pid, version, counters } = instance
  const paused = await query(sql.heartbeat, [
    id,
    host,
    pid,
    version,
    JSON.stringify(instance.handlers),
    JSON.stringify(instance.accept),
    counters.done,
    counters.failed,
    counters.dead,
    stopped ? 1 : 0,
  ])
  return paused.map((row) => row[0] as string)
}

export async function instances(
  sql: Statements,
  query: Query,
  seenWithinMs: number,
): Promise<readonly SeenInstance[]> {
  const rows = await query(sql.seen, [seenWithinMs])
  return rows.map((row) => ({
    id: row[0] as string,
    host: row[1] as string,
    pid: Number(row[2]),
    version: row[3] as string,
    handlers: JSON.parse(row[4] as string),
    accept: JSON.parse(row[5] as string),
    counters: { done: Number(row[6]), failed: Number(row[7]), dead: Number(row[8]) },
    startedAt: new Date(Number(row[9])),
    lastSeenAt: new Date(Number(row[10])),
    stoppedAt: row[11] === null ? null : new Date(Number(row[11])),
  }))
}
