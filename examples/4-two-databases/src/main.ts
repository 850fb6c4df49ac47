import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { PGlite } from '@electric-sql/pglite'
import { createOutbox, defineEvent, NoActiveTransactionError, silentLogger } from 'aftercommit'
import { exactlyOnce } from 'aftercommit/inbox'
import { postgresStore } from 'aftercommit/postgres'
import { sqliteStore } from 'aftercommit/sqlite'
import Database from 'libsql'

const OrderPlaced = defineEvent<{ orderId: string; items: number }>('order.placed')
const ParcelPacked = defineEvent<{ orderId: string; parcel: number }>('parcel.packed')

// The shop's database and its outbox.
const shopDatabase = new PGlite()
await shopDatabase.exec('create table orders (id text primary key, state text not null)')
const shop = createOutbox({ store: postgresStore(shopDatabase), logger: silentLogger })

// The warehouse's.
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'aftercommit-example-'))
const openWarehouse = () => new Database(path.join(folder, 'warehouse.db'))
const setup = openWarehouse()
setup.exec('create table parcels (number integer primary key, order_id text not null)')
setup.close()
const warehouse = createOutbox({ store: sqliteStore(openWarehouse), logger: silentLogger })

// From the shop to the warehouse: the parcel, the mark and the answer are one transaction of the warehouse.
shop.on(
  OrderPlaced,
  'pack',
  exactlyOnce(async ({ payload: { orderId, items } }, { tx }) => {
    const { lastInsertRowid } = tx.client.prepare('insert into parcels (order_id) values (?)').run(orderId)
    await tx.publish(ParcelPacked({ orderId, parcel: Number(lastInsertRowid) }))
    console.log(`warehouse: packed ${items} items of ${orderId}`)
  }, warehouse),
)

// And back.
warehouse.on(ParcelPacked, 'mark-shipped', async ({ payload: { orderId, parcel } }) => {
  await shopDatabase.query("update orders set state = 'shipped' where id = $1", [orderId])
  console.log(`shop: ${orderId} is shipped in parcel ${parcel}`)
})

await Promise.all([shop.migrate(), warehouse.migrate()])
await Promise.all([shop.start(), warehouse.start()])

await shop.transaction(async (tx) => {
  await tx.client.query("insert into orders values ('o-1', 'placed')")
  await tx.publish(OrderPlaced({ orderId: 'o-1', items: 3 }))
  await warehouse.publish(ParcelPacked({ orderId: 'o-1', parcel: 0 })).catch((error: unknown) => {
    console.log(`refused, since the transaction is the shop's: ${error instanceof NoActiveTransactionError}`)
  })
})
await shop.drain()
await warehouse.drain()

const { rows } = await shopDatabase.query<{ id: string; state: string }>('select * from orders')
console.log(rows.map(({ id, state }) => `${id}: ${state}`).join(', '))
const done = await Promise.all([shop.stats(), warehouse.stats()])
console.log(`events done: shop ${done[0].done}, warehouse ${done[1].done}`)

await Promise.all([shop.stop(), warehouse.stop()])
await shopDatabase.close()
fs.rmSync(folder, { recursive: true, force: true })
