// The shop: an order and its event are one transaction; the relay carries the event to Redis.
import { createOutbox, silentLogger } from 'aftercommit'
import { redisBus } from 'aftercommit/redis'
import { sqliteStore } from 'aftercommit/sqlite'
import Database from 'libsql'
import { createClient } from 'redis'
import { OrderPlaced } from './events.js'

const { SHOP_DB = 'shop.db', REDIS_URL = 'redis://localhost:6379', STREAM = 'orders' } = process.env

const outbox = createOutbox({
  store: sqliteStore(() => new Database(SHOP_DB)),
  logger: silentLogger,
  poller: { leaseMs: 500, pollIntervalMs: 100 },
})
const redis = await createClient({ url: REDIS_URL })
  .on('error', () => {})
  .connect()
outbox.relay(redisBus(redis, { stream: STREAM, logger: silentLogger }), { events: ['order.*'] })
await outbox.start()

process.on('message', async (orderIds: string[]) => {
  await outbox.transaction(async (tx) => {
    for (const orderId of orderIds) {
      tx.client.prepare('insert or ignore into orders values (?, 42)').run(orderId)
      // The id of the event is the order's: whoever asks twice gets one order and one event.
      const placed = OrderPlaced({ orderId, total: 42 }, { eventId: orderId })
      await tx.publish(placed, { onDuplicate: 'ignore' })
    }
  })
  process.send?.('placed')
})
process.on('disconnect', () => process.exit())
process.send?.('ready')
