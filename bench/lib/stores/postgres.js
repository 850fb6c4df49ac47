import { randomUUID } from 'node:crypto'
import { postgresStore } from '../../../dist/stores/postgres/index.js'
import { insertOrder, ORDERS, TYPE } from '../payload.js'
import { poolFor, transact, warmUp } from '../pool.js'

/** The least that tells one event from another: its id, its type, its time and its payload. */
const BARE = `create table bare (id bigint primary key, status smallint not null default 0, token text, locked_until timestamptz,
  event_id text not null unique, event_type text not null, occurred_at timestamptz not null, payload json);
create index on bare (id) where status = 0`

export async function open(url, connections) {
  const pool = poolFor(url, { connections: connections + 6 })
  await warmUp(pool, connections)
  return {
    store: postgresStore(pool),
    install: () => pool.query(`${ORDERS}; ${BARE}`),
    insertOrder: (client, payload) => client.query(insertOrder(payload)),
    bare: {
      transaction: (payload) =>
        transact(pool, undefined, async (client) => {
          await client.query(insertOrder(payload))
          const text =
            'insert into bare (id, event_id, event_type, occurred_at, payload) values ($1, $2, $3, $4, $5)'
          const values = [payload.id, randomUUID(), TYPE, new Date(), JSON.stringify(payload)]
          await client.query({ name: 'bench-bare', text, values })
        }),
      fill: (payloads) =>
        pool.query(
          `insert into bare (id, event_id, event_type, occurred_at, payload)
           select id, gen_random_uuid()::text, $2, now(), payload from unnest($1::bigint[], $3::json[]) as one (id, payload)`,
          [payloads.map(({ id }) => id), TYPE, payloads.map((payload) => JSON.stringify(payload))],
        ),
      take: async (limit) => {
        const text = 'select id, payload from bare where status = 0 order by id limit $1'
        return (await pool.query({ name: 'bench-take', text, values: [limit] })).rows
      },
      lease: async (limit) => {
        const text = `update bare set token = $2, locked_until = now() + interval '30 s' where id = any(array(
          select id from bare where status = 0 and token is null order by id limit $1 for update skip locked))
          returning id, payload`
        return (await pool.query({ name: 'bench-lease', text, values: [limit, 'somebody'] })).rows
      },
      finish: (ids) =>
        pool.query({
          name: 'bench-finish',
          text: 'update bare set status = 1, token = null, locked_until = null where id = any($1)',
          values: [ids],
        }),
    },
    close: () => pool.end(),
  }
}
