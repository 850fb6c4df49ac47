// A worker process: sends receipts for orders that the shop's web process took.
import { setTimeout as sleep } from 'node:timers/promises'
import { config, leave, say, told } from './child.js'
import { now, openRecord } from './records.js'
import { OrderPlaced, openShop } from './shop.js'

const MAIL_SERVER_MS = 40

const { pool, outbox } = openShop(config.url, { connections: 6, concurrency: 32 })
const recordHandled = openRecord(config.folder, 'handled')
const counts = { handled: 0 }

outbox.on(OrderPlaced, 'send-receipt', async (event) => {
  const startedAt = now()
  await sleep(MAIL_SERVER_MS)
  recordHandled(event.eventId, 'send-receipt', process.pid, startedAt)
  counts.handled++
})

await outbox.start()
const counting = setInterval(() => say({ counts }), 100)
const stop = told('stop')
say({ ready: outbox.instanceId })

await stop
await outbox.stop()
await pool.end()
clearInterval(counting)
say({ counts })
leave()
