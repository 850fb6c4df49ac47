import type { InstanceRecord, SeenInstance } from '../../store.js'
import type { Connection } from './driver.js'
import type { Names } from './names.js'
import { clock, NOW } from './schema.js'

/** Keeps the counters of instances that are long gone. */
const FORMER = '(former instances)'

export function registryStatements(names: Names) {
  const gone = `last_seen_at <= :before and id <> '${FORMER}'`
  return {
    heartbeat: `
insert into ${names.instances} (id, host, pid, version, handlers, accept, done, failed, dead)
values (:id, :host, :pid, :version, :handlers, :accept, :done, :failed, :dead)
on conflict (id) do update set handlers = excluded.handlers, accept = excluded.accept, done = excluded.done,
  failed = excluded.failed, dead = excluded.dead, last_seen_at = ${NOW},
  stopped_at = case when :stopped = 1 then ${NOW} end`,
    seen: `
select id, host, pid, version, handlers, accept, done, failed, dead, started_at, last_seen_at, stopped_at
  from ${names.instances}
 where last_seen_at > ${NOW} - :seenWithinMs and id <> '${FORMER}' order by started_at, id`,
    gone: `select 1 from ${names.instances} where ${gone} limit 1`,
    keepCounters: `
insert into ${names.instances} (id, host, pid, version, handlers, accept, done, failed, dead)
select '${FORMER}', '', 0, '', '{}', '{}', sum(done), sum(failed), sum(dead) from ${names.instances}
 where ${gone} having count(*) > 0
on conflict (id) do update set done = done + excluded.done, failed = failed + excluded.failed,
  dead = dead + excluded.dead`,
    forget: `delete from ${names.instances} where ${gone}`,
  }
}

type Statements = ReturnType<typeof registryStatements>

/** Inside a write transaction. */
export function heartbeat(sql: Statements, db: Connection, instance: InstanceRecord, stopped: boolean): void {
  const { id, host, pid, version, counters } = instance
  db.run(sql.heartbeat, {
    id,
    host,
    pid,
    version,
    handlers: JSON.stringify(instance.handlers),
    accept: JSON.stringify(instance.accept),
    done: counters.done,
    failed: counters.failed,
    dead: counters.dead,
    stopped: stopped ? 1 : 0,
  })
}

export function instances(sql: Statements, db: Connection, seenWithinMs: number): readonly SeenInstance[] {
  return db.all(sql.seen, { seenWithinMs }).map((row) => ({
    id: row.id as string,
    host: row.host as string,
    pid: Number(row.pid),
    version: row.version as string,
    handlers: JSON.parse(row.handlers as string),
    accept: JSON.parse(row.accept as string),
    counters: { done: Number(row.done), failed: Number(row.failed), dead: Number(row.dead) },
    startedAt: new Date(Number(row.started_at)),
    lastSeenAt: new Date(Number(row.last_seen_at)),
    stoppedAt: row.stopped_at === null ? null : new Date(Number(row.stopped_at)),
  }))
}

export function hasGone(sql: Statements, db: Connection, olderThanMs: number): boolean {
  return db.all(sql.gone, { before: clock(db) - olderThanMs }).length > 0
}

/** Inside a write transaction. */
export function pruneInstances(sql: Statements, db: Connection, olderThanMs: number): void {
  const before = clock(db) - olderThanMs
  db.run(sql.keepCounters, { before })
  db.run(sql.forget, { before })
}
