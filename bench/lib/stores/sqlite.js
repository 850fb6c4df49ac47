import { randomUUID } from 'node:crypto'
import { DatabaseSync } from 'node:sqlite'
import { sqliteStore } from '../../../dist/stores/sqlite/index.js'
import { ORDERS, TYPE } from '../payload.js'

/** The least that tells one event from another: its id, its type, its time and its payload. */
const BARE = `create table bare (id integer primary key, status integer not null default 0, token text, locked_until integer,
  event_id text not null unique, event_type text not null, occurred_at integer not null, payload text);
create index bare_new on bare (id) where status = 0`

/** `url` is the file. */
export async function open(url) {
  const connect = () => new DatabaseSync(url)
  const database = connect()
  database.exec('pragma journal_mode = wal; pragma synchronous = full')
  const prepared = new Map()
  const statement = (client, sql) => {
    if (client !== database) return client.prepare(sql)
    if (!prepared.has(sql)) prepared.set(sql, database.prepare(sql))
    return prepared.get(sql)
  }
  const insertOrder = (client, { id, customer, total }) =>
    statement(client, 'insert into orders (id, customer, total) values (?, ?, ?)').run(id, customer.id, total)
  const insert = (payload) =>
    statement(
      database,
      'insert into bare (id, event_id, event_type, occurred_at, payload) values (?, ?, ?, ?, ?)',
    ).run(payload.id, randomUUID(), TYPE, Date.now(), JSON.stringify(payload))
  return {
    store: sqliteStore(connect),
    install: async () => database.exec(`${ORDERS}; ${BARE}`),
    insertOrder,
    bare: {
      async transaction(payload) {
        database.exec('begin immediate')
        insertOrder(database, payload)
        insert(payload)
        database.exec('commit')
      },
      async fill(payloads) {
        database.exec('begin immediate')
        for (const payload of payloads) insert(payload)
        database.exec('commit')
      },
      take: async (limit) =>
        statement(database, 'select id, payload from bare where status = 0 order by id limit ?')
          .all(limit)
          .map((row) => ({ id: row.id, payload: JSON.parse(row.payload) })),
      lease: async (limit) =>
        statement(
          database,
          `update bare set token = 'somebody', locked_until = unixepoch() + 30 where id in (
            select id from bare where status = 0 and token is null order by id limit ?) returning id, payload`,
        )
          .all(limit)
          .map((row) => ({ id: row.id, payload: JSON.parse(row.payload) })),
      finish: async (ids) =>
        statement(
          database,
          'update bare set status = 1, token = null, locked_until = null where id in (select value from json_each(?))',
        ).run(JSON.stringify(ids)),
    },
    close: async () => database.close(),
  }
}
