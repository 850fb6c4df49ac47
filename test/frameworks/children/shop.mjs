// What the servers of stopping.test.ts have in common. They say on standard output what happens to them.
import { createOutbox, defineEvent, silentLogger } from 'aftercommit'
import { postgresStore } from 'aftercommit/postgres'
import pg from 'pg'

const OrderPlaced = defineEvent('order.placed')

export function say(line) {
  process.stdout.write(`${line}\n`)
}

export function openShop() {
  const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL, max: 20 })
  const outbox = createOutbox({
    store: postgresStore(pool),
    dispatcher: { drainTimeoutMs: 20_000 },
    logger: silentLogger,
  })
  outbox.on(OrderPlaced, 'ship', async ({ payload }) => {
    say(`handling ${payload.id}`)
    if (payload.hold === 'handler') await pool.query('select pg_advisory_xact_lock(2)')
    await pool.query('insert into shipped values ($1)', [payload.id])
    say(`handled ${payload.id}`)
  })
  const placeOrder = (order) =>
    outbox.transaction(async (tx) => {
      say(`asked ${order.id}`)
      if (order.hold === 'request') await tx.client.query('select pg_advisory_xact_lock(1)')
      await tx.client.query('insert into orders values ($1)', [order.id])
      await tx.publish(OrderPlaced(order))
    })
  const closePool = async () => {
    await pool.end()
    say('pool closed')
  }
  return { outbox, placeOrder, closePool }
}
