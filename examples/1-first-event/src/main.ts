import { PGlite } from '@electric-sql/pglite'
import { createOutbox, defineEvent, silentLogger } from 'aftercommit'
import { postgresStore } from 'aftercommit/postgres'

const OrderPlaced = defineEvent<{ orderId: string; total: number }>('order.placed', {
  aggregateType: 'order',
  aggregateId: (payload) => payload.orderId,
})

const database = new PGlite()
await database.exec('create table orders (id text primary key, total int not null)')

const outbox = createOutbox({ store: postgresStore(database), logger: silentLogger })
outbox.on(OrderPlaced, 'send-receipt', async ({ payload }) => {
  console.log(`receipt over ${payload.total} for ${payload.orderId}`)
})
await outbox.migrate()
await outbox.start()

async function placeOrder(orderId: string, total: number): Promise<void> {
  await outbox.transaction(async (tx) => {
    await tx.client.query('insert into orders values ($1, $2)', [orderId, total])
    await tx.publish(OrderPlaced({ orderId, total }))
    console.log(`${orderId} is written, nothing is announced yet`)
    if (total > 1_000) throw new Error('the card was declined')
  })
}

await placeOrder('o-1', 42)
await outbox.drain()
await placeOrder('o-2', 5_000).catch((error: Error) => console.log(`o-2 was rolled back: ${error.message}`))
await outbox.drain()

const orders = await database.query<{ id: string }>('select id from orders')
const { done, pending } = await outbox.stats()
console.log(`orders: ${orders.rows.map(({ id }) => id).join(', ')}; events: ${done} done, ${pending} pending`)

await outbox.stop()
await database.close()
