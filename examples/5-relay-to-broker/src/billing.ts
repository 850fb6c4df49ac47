// Billing: the invoice and the mark that the event was processed are one transaction; Redis hears of it afterwards.
import { createOutbox, silentLogger } from 'aftercommit'
import { exactlyOnce } from 'aftercommit/inbox'
import { redisBus } from 'aftercommit/redis'
import { sqliteStore } from 'aftercommit/sqlite'
import Database from 'libsql'
import { createClient } from 'redis'
import { OrderPlaced } from './events.js'

const { BILLING_DB = 'billing.db', REDIS_URL = 'redis://localhost:6379', STREAM = 'orders' } = process.env

const outbox = createOutbox({ store: sqliteStore(() => new Database(BILLING_DB)), logger: silentLogger })
const redis = await createClient({ url: REDIS_URL })
  .on('error', () => {})
  .connect()
const bus = redisBus(redis, { stream: STREAM, group: 'billing', takeoverMs: 500, logger: silentLogger })

bus.subscribe(
  OrderPlaced,
  exactlyOnce(
    {
      name: 'write-invoice',
      handle({ payload: { orderId, total } }, { tx }) {
        tx.client.prepare('insert into invoices (order_id, total) values (?, ?)').run(orderId, total)
      },
    },
    outbox,
  ),
)
await bus.start()
process.on('disconnect', () => process.exit())
process.send?.('ready')
