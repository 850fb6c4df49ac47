// The shop's web process: takes orders, publishes in the same transaction, and charges cards by the hot path.
import { setTimeout as sleep } from 'node:timers/promises'
import { config, leave, say, told } from './child.js'
import { now, openRecord } from './records.js'
import { OrderPlaced, openShop, PaymentRequested } from './shop.js'

const ORDERS_PER_SECOND = 400
const CUSTOMERS = 8
/** Every tenth order is called off after its events were published. */
const CALLED_OFF = 10

const { pool, outbox } = openShop(config.url, { connections: CUSTOMERS + 6, concurrency: 8 })
const recordCommit = openRecord(config.folder, 'commits')
const recordHandled = openRecord(config.folder, 'handled')
const counts = { committed: 0, rolledBack: 0, handled: 0 }
let orders = 0

class CalledOff extends Error {}

outbox.on(PaymentRequested, 'charge-card', (event) => {
  recordHandled(event.eventId, 'charge-card', process.pid, now())
  counts.handled++
})

await outbox.start()
const counting = setInterval(() => say({ counts }), 100)
const stop = told('stop')
const go = told('go')
say({ ready: outbox.instanceId })
await go

const start = performance.now()
await Promise.all(Array.from({ length: CUSTOMERS }, buy))
say({ counts, soldOut: true })

await stop
await outbox.stop()
await pool.end()
clearInterval(counting)
say({ counts })
leave()

/** One customer after the other, at a steady pace. */
async function buy() {
  while (performance.now() - start < config.seconds * 1_000 && counts.committed < config.events) {
    const number = ++orders
    const wait = start + (number * 1_000) / ORDERS_PER_SECOND - performance.now()
    if (wait > 1) await sleep(wait)
    try {
      await placeOrder(number)
      counts.committed += 2
    } catch (error) {
      if (!(error instanceof CalledOff)) throw error
      counts.rolledBack += 2
    }
  }
}

/** @param {number} number */
function placeOrder(number) {
  const orderId = `order-${number}`
  const total = 5 + (number % 95)
  return outbox.transaction(async (tx) => {
    const placed = OrderPlaced({ orderId, total, placedAt: new Date() })
    const payment = PaymentRequested({ orderId, amount: total })
    await tx.client.query('insert into orders values ($1, $2, $3, $4)', [
      orderId,
      total,
      placed.eventId,
      payment.eventId,
    ])
    await tx.publishAll([placed, payment])
    if (number % CALLED_OFF === 0) throw new CalledOff()
    tx.afterCommit(() => {
      const committedAt = now()
      recordCommit(placed.eventId, committedAt)
      recordCommit(payment.eventId, committedAt)
    })
  })
}
