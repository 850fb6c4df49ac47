import { seenInstance } from '../../registry.js'
import type { InstanceRecord, SeenInstance } from '../../store.js'
import { IDS, microseconds } from './append.js'
import type { Param, Query } from './driver.js'
import type { Names } from './names.js'

/** Keeps the counters of instances that are long gone. */
const FORMER = '(former instances)'
const NOW = 'utc_timestamp(6)'

const epochMs = (column: string) => `timestampdiff(microsecond, '1970-01-01', ${column}) / 1000`

export function registryStatements({ instances }: Names) {
  return {
    // A key that exists is changed whatever its old values were.
    heartbeat: `
insert into ${instances} (id, host, pid, version, handlers, accept, done, failed, dead)
values (?, ?, ?, ?, ?, ?, ?, ?, ?)
on duplicate key update handlers = ?, accept = ?, done = ?, failed = ?, dead = ?, last_seen_at = ${NOW},
  stopped_at = null`,
    stopped: `
insert into ${instances} (id, host, pid, version, handlers, accept, done, failed, dead, stopped_at)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ${NOW})
on duplicate key update host = ?, pid = ?, version = ?, handlers = ?, accept = ?, done = done + ?, failed = failed + ?,
  dead = dead + ?, last_seen_at = ${NOW}, stopped_at = ${NOW}`,
    forget: `delete from ${instances} where id = ?`,
    seen: `
select id, host, pid, version, handlers, accept, done, failed, dead, ${epochMs('started_at')},
  ${epochMs('last_seen_at')}, ${epochMs('stopped_at')}
  from ${instances} where last_seen_at > ${NOW} - interval ? microsecond and id <> ? order by started_at, id`,
    old: `
select id, done, failed, dead from ${instances}
 where last_seen_at <= ${NOW} - interval ? microsecond and id <> ? order by id for update`,
    remove: `delete i from ${IDS} straight_join ${instances} i force index (primary) on i.id = s.id`,
    keep: `
insert into ${instances} (id, host, pid, version, handlers, accept, done, failed, dead)
values (?, '', 0, '', '{}', '{}', ?, ?, ?)
on duplicate key update done = done + ?, failed = failed + ?, dead = dead + ?`,
  }
}

type Statements = ReturnType<typeof registryStatements>

export async function heartbeat(sql: Statements, query: Query, instance: InstanceRecord): Promise<void> {
  const { who, state } = paramsOf(instance)
  await query(sql.heartbeat, [...who, ...state, ...state])
}

/** Inside a transaction: counters are neither lost nor counted twice. */
export async function registerStopped(
  sql: Statements,
  query: Query,
  consumer: InstanceRecord,
  replaces: string,
): Promise<void> {
  const { who, state } = paramsOf(consumer)
  await query(sql.forget, [replaces])
  await query(sql.stopped, [...who, ...state, ...who.slice(1), ...state])
}

function paramsOf({ id, host, pid, version, handlers, accept, counters }: InstanceRecord) {
  const { done, failed, dead } = counters
  const who: readonly Param[] = [id, host, pid, version]
  const state: readonly Param[] = [JSON.stringify(handlers), JSON.stringify(accept), done, failed, dead]
  return { who, state }
}

export async function instances(
  sql: Statements,
  query: Query,
  seenWithinMs: number,
): Promise<readonly SeenInstance[]> {
  const { rows } = await query(sql.seen, [microseconds(seenWithinMs), FORMER])
  return rows.map(seenInstance)
}

/** Inside a transaction: counters are neither lost nor counted twice. */
export async function pruneInstances(sql: Statements, query: Query, olderThanMs: number): Promise<void> {
  const { rows } = await query(sql.old, [microseconds(olderThanMs), FORMER])
  if (rows.length === 0) return
  const sums = [1, 2, 3].map((at) => rows.reduce((sum, row) => sum + Number(row[at]), 0))
  await query(sql.keep, [FORMER, ...sums, ...sums])
  await query(sql.remove, [JSON.stringify(rows.map((row) => row[0]))])
}
