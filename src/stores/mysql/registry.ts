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
insert into ${instances} (id, host, pid, version, handlers, accept, done, failed, dead, stopped_at)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, if(? = 1, ${NOW}, null))
on duplicate key update handlers = ?, accept = ?, done = ?, failed = ?, dead = ?, last_seen_at = ${NOW},
  stopped_at = if(? = 1, ${NOW}, null)`,
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

export async function heartbeat(
  sql: Statements,
  query: Query,
  instance: InstanceRecord,
  stopped: boolean,
): Promise<void> {
  const { id, host, pid, version, counters } = instance
  const changing: Param[] = [
    JSON.stringify(instance.handlers),
    JSON.stringify(instance.accept),
    counters.done,
    counters.failed,
    counters.dead,
    stopped ? 1 : 0,
  ]
  await query(sql.heartbeat, [id, host, pid, version, ...changing, ...changing])
}

export async function instances(
  sql: Statements,
  query: Query,
  seenWithinMs: number,
): Promise<readonly SeenInstance[]> {
  const { rows } = await query(sql.seen, [microseconds(seenWithinMs), FORMER])
  return rows.map((row) => ({
    id: row[0] as string,
    host: row[1] as string,
    pid: Number(row[2]),
    version: row[3] as string,
    handlers: JSON.parse(row[4] as string),
    accept: JSON.parse(row[5] as string),
    counters: { done: Number(row[6]), failed: Number(row[7]), dead: Number(row[8]) },
    startedAt: date(row[9]) as Date,
    lastSeenAt: date(row[10]) as Date,
    stoppedAt: date(row[11]),
  }))
}

/** Inside a transaction: counters are neither lost nor counted twice. */
export async function pruneInstances(sql: Statements, query: Query, olderThanMs: number): Promise<void> {
  const { rows } = await query(sql.old, [microseconds(olderThanMs), FORMER])
  if (rows.length === 0) return
  const sums = [1, 2, 3].map((at) => rows.reduce((sum, row) => sum + Number(row[at]), 0))
  await query(sql.keep, [FORMER, ...sums, ...sums])
  await query(sql.remove, [JSON.stringify(rows.map((row) => row[0]))])
}

function date(epochMs: unknown): Date | null {
  return epochMs === null ? null : new Date(Number(epochMs))
}
