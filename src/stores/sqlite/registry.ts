import { seenInstance } from '../../registry.js'
import type { InstanceRecord, SeenInstance } from '../../store.js'
import type { Connection, Params } from './driver.js'
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
  failed = excluded.failed, dead = excluded.dead, last_seen_at = ${NOW}, stopped_at = null`,
    stopped: `
insert into ${names.instances} (id, host, pid, version, handlers, accept, done, failed, dead, stopped_at)
values (:id, :host, :pid, :version, :handlers, :accept, :done, :failed, :dead, ${NOW})
on conflict (id) do update set host = excluded.host, pid = excluded.pid, version = excluded.version,
  handlers = excluded.handlers, accept = excluded.accept, done = done + excluded.done,
  failed = failed + excluded.failed, dead = dead + excluded.dead, last_seen_at = ${NOW}, stopped_at = ${NOW}`,
    remove: `delete from ${names.instances} where id = :id`,
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
export function heartbeat(sql: Statements, db: Connection, instance: InstanceRecord): void {
  db.run(sql.heartbeat, paramsOf(instance))
}

/** Inside a write transaction. */
export function registerStopped(
  sql: Statements,
  db: Connection,
  consumer: InstanceRecord,
  replaces: string,
): void {
  db.run(sql.remove, { id: replaces })
  db.run(sql.stopped, paramsOf(consumer))
}

function paramsOf({ id, host, pid, version, handlers, accept, counters }: InstanceRecord): Params {
  return {
    ...{ id, host, pid, version, handlers: JSON.stringify(handlers), accept: JSON.stringify(accept) },
    ...{ done: counters.done, failed: counters.failed, dead: counters.dead },
  }
}

export function instances(sql: Statements, db: Connection, seenWithinMs: number): readonly SeenInstance[] {
  return db.lists(sql.seen, { seenWithinMs }).map(seenInstance)
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
