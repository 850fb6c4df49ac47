// What all processes of the shop share: its events, its table, and how it opens its outbox.
import { createOutbox, defineEvent, silentLogger } from 'aftercommit'
import { postgresStore } from 'aftercommit/postgres'
import pg from 'pg'
import { z } from 'zod'

/** Both are short, so that the take-over after the kill is seen. Real systems keep the defaults, 30 s and 5 s. */
export const LEASE_MS = 1_500
const POLL_INTERVAL_MS = 1_000

/** Handled in the worker processes: the receipt is sent by mail. */
export const OrderPlaced = defineEvent('order.placed', {
  aggregateType: 'order',
  aggregateId: (order) => order.orderId,
  schema: z.object({ orderId: z.string(), total: z.number(), placedAt: z.coerce.date() }),
})

/** Handled in the process that publishes it, straight after the commit. */
export const PaymentRequested = defineEvent('payment.requested', {
  aggregateType: 'payment',
  aggregateId: (payment) => payment.orderId,
  schema: z.object({ orderId: z.string(), amount: z.number() }),
})

/** Each order remembers the ids of its events: what is in this table, and nothing else, must be handled. */
export const ORDERS = `create table orders (
  id text primary key,
  total int not null,
  placed_event_id text not null,
  payment_event_id text not null)`

/**
 * @param {string} url
 * @param {{ connections: number, concurrency?: number }} size
 */
export function openShop(url, { connections, concurrency = 4 }) {
  const pool = new pg.Pool({ connectionString: url, max: connections })
  // Without a listener a connection that breaks while idle would end the process.
  pool.on('error', () => {})
  const outbox = createOutbox({
    store: postgresStore(pool),
    dispatcher: { concurrency },
    poller: { leaseMs: LEASE_MS, pollIntervalMs: POLL_INTERVAL_MS },
    logger: silentLogger,
  })
  return { pool, outbox }
}
