import { randomUUID } from 'node:crypto'
import mysql from 'mysql2/promise'
import { mysqlStore } from '../../../dist/stores/mysql/index.js'
import { ORDERS, TYPE } from '../payload.js'

/** The least that tells one event from another: its id, its type, its time and its payload. */
const BARE = `create table bare (id bigint primary key, status tinyint not null default 0, token varchar(255),
  locked_until datetime(3), event_id varchar(64) not null unique, event_type varchar(255) not null,
  occurred_at datetime(3) not null, payload longtext, key (status, id))`
const INSERT_ORDER = 'insert into orders (id, customer, total) values (?, ?, ?)'

export async function open(url, connections) {
  const pool = mysql.createPool({ uri: url, connectionLimit: connections + 6 })
  const insertOrder = (client, { id, customer, total }) =>
    client.execute(INSERT_ORDER, [id, customer.id, total])
  return {
    store: mysqlStore(pool),
    async install() {
      await pool.query(ORDERS.replace(/\btext\b/g, 'varchar(255)'))
      await pool.query(BARE)
    },
    insertOrder,
    bare: {
      async transaction(payload) {
        const client = await pool.getConnection()
        try {
          await client.query('START TRANSACTION')
          await insertOrder(client, payload)
          await client.execute(
            'insert into bare (id, event_id, event_type, occurred_at, payload) values (?, ?, ?, ?, ?)',
            [payload.id, randomUUID(), TYPE, new Date(), JSON.stringify(payload)],
          )
          await client.query('COMMIT')
        } finally {
          client.release()
        }
      },
      fill: (payloads) =>
        pool.query('insert into bare (id, event_id, event_type, occurred_at, payload) values ?', [
          payloads.map((payload) => [payload.id, randomUUID(), TYPE, new Date(), JSON.stringify(payload)]),
        ]),
      take: async (limit) =>
        (
          await pool.query('select id, payload from bare where status = 0 order by id limit ?', [limit])
        )[0].map((row) => ({ id: row.id, payload: JSON.parse(row.payload) })),
      async lease(limit) {
        const client = await pool.getConnection()
        try {
          await client.query('START TRANSACTION')
          const find =
            'select id from bare where status = 0 and token is null order by id limit ? for update skip locked'
          const ids = (await client.query(find, [limit]))[0].map((row) => row.id)
          if (ids.length > 0)
            await client.query(
              'update bare set token = ?, locked_until = now(3) + interval 30 second where id in (?)',
              ['somebody', ids],
            )
          const rows =
            ids.length > 0
              ? (await client.query('select id, payload from bare where id in (?)', [ids]))[0]
              : []
          await client.query('COMMIT')
          return rows.map((row) => ({ id: row.id, payload: JSON.parse(row.payload) }))
        } finally {
          client.release()
        }
      },
      finish: (ids) =>
        pool.query('update bare set status = 1, token = null, locked_until = null where id in (?)', [ids]),
    },
    close: () => pool.end(),
  }
}
