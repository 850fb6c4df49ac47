import type { Connections } from './connections.js'
import type { SqliteDatabase } from './driver.js'
import type { Names } from './names.js'
import { indexesOf, NOW } from './schema.js'

export function pruneStatements(names: Names) {
  const index = indexesOf(names)
  const done = `${names.events} indexed by ${index.done} where status = 1 and done_at < ${NOW} - :olderThanMs`
  const marks = `${names.inbox} indexed by ${index.inboxAge} where processed_at < ${NOW} - :olderThanMs`
  return {
    done: {
      look: `select 1 from ${done} limit 1`,
      remove: `delete from ${names.events} where seq in (select seq from ${done} limit :limit) returning 1`,
    },
    marks: {
      look: `select 1 from ${marks} limit 1`,
      remove: `
delete from ${names.inbox} where (handler, event_id) in (select handler, event_id from ${marks} limit :limit)
returning 1`,
    },
  }
}

type Statements = ReturnType<typeof pruneStatements>

/** Takes the write lock only when something is to be deleted. */
export async function prune(
  sql: Statements['done'],
  connections: Connections<SqliteDatabase>,
  olderThanMs: number,
  limit: number,
): Promise<number> {
  const found = await connections.read((db) => db.all(sql.look, { olderThanMs }))
  if (found.length === 0) return 0
  return connections.write((db) => db.all(sql.remove, { olderThanMs, limit }).length)
}
