// A process that changes aggregates under their row locks and publishes each change with its version. Told over IPC
// how many transactions; every tenth is rolled back after it has published.

import { createOutbox, silentLogger } from 'aftercommit'
import { postgresStore } from 'aftercommit/postgres'
import pg from 'pg'

const { url, table, count, aggregates, seed } = JSON.parse(process.argv[2])
const LOOPS = 6

let state = seed
const random = () => {
  state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
  return state / 2 ** 32
}
const pool = new pg.Pool({ connectionString: url, max: LOOPS })
const outbox = createOutbox({ store: postgresStore(pool, { table }), logger: silentLogger })
class Undo extends Error {}

let left = count
async function loop() {
  while (left > 0) {
    const undo = random() < 0.1
    if (!undo) left--
    const id = `agg-${Math.floor(random() * aggregates)}`
    await outbox
      .transaction(async (tx) => {
        const { rows } = await tx.client.query(
          `update ${table}_aggregate set version = version + 1 where id = $1 returning version`,
          [id],
        )
        await tx.publish({
          type: 'aggregate.changed',
          orderingKey: id,
          payload: { version: rows[0].version },
        })
        if (undo) throw new Undo()
      })
      .catch((error) => {
        if (!(error instanceof Undo)) throw error
      })
  }
}
await Promise.all(Array.from({ length: LOOPS }, loop))
await outbox.stop()
await pool.end()
process.disconnect()
