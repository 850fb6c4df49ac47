import { seenInstance } from '../../registry.js'
import type { InstanceRecord, SeenInstance } from '../../store.js'
import { milliseconds, type Param, type Query, statement } from './driver.js'
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
  failed = excluded.failed, dead = excluded.dead, last_seen_at = clock_timestamp(), stopped_at = null${flag.update})
select event_type from ${names.pauses} order by event_type`),
    // $10 the id of the row that goes.
    stopped: statement(`
with gone as (delete from ${names.instances} where id = $10::text),
beat as (insert into ${names.instances} (id, host, pid, version, handlers, accept, done, failed, dead, stopped_at)
values ($1::text, $2::text, $3::int, $4::text, $5::text::json, $6::text::json, $7::bigint, $8::bigint, $9::bigint, clock_timestamp())
on conflict (id) do update set host = excluded.host, pid = excluded.pid, version = excluded.version,
  handlers = excluded.handlers, accept = excluded.accept, done = ${names.instances}.done + excluded.done,
  failed = ${names.instances}.failed + excluded.failed, dead = ${names.instances}.dead + excluded.dead,
  last_seen_at = clock_timestamp(), stopped_at = clock_timestamp())
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
): Promise<readonly string[]> {
  const paused = await query(sql.heartbeat, paramsOf(instance))
  return paused.map((row) => row[0] as string)
}

export async function registerStopped(
  sql: Statements,
  query: Query,
  consumer: InstanceRecord,
  replaces: string,
): Promise<readonly string[]> {
  const paused = await query(sql.stopped, [...paramsOf(consumer), replaces])
  return paused.map((row) => row[0] as string)
}

function paramsOf({ id, host, pid, version, handlers, accept, counters }: InstanceRecord): Param[] {
  const { done, failed, dead } = counters
  return [id, host, pid, version, JSON.stringify(handlers), JSON.stringify(accept), done, failed, dead]
}

export async function instances(
  sql: Statements,
  query: Query,
  seenWithinMs: number,
): Promise<readonly SeenInstance[]> {
  const rows = await query(sql.seen, [seenWithinMs])
  return rows.map(seenInstance)
}
