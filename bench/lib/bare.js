// The least that a transaction with an event could cost: a bare INSERT into a table with two columns and no index.
import { withClient } from './databases.js'
import { insertOrder, ORDERS } from './payload.js'
import { poolFor, transact, warmUp } from './pool.js'

export const side = { install, open }

async function install(url) {
  await withClient(url, (client) => client.query(`${ORDERS}; create table bare (id bigint, payload json)`))
}

async function open(url, { connections = 2, onCommit } = {}) {
  const pool = poolFor(url, { connections, onCommit })
  await warmUp(pool, connections)
  return {
    start: async () => {},
    transaction: (payload) =>
      transact(pool, payload.id, async (client) => {
        await client.query(insertOrder(payload))
        await client.query({
          name: 'bench-bare-insert',
          text: 'insert into bare (id, payload) values ($1, $2)',
          values: [payload.id, JSON.stringify(payload)],
        })
      }),
    stop: () => pool.end(),
  }
}
