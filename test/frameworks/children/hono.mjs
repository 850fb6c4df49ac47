import { serve } from '@hono/node-server'
import { Hono } from 'hono'
import { openShop, say } from './shop.mjs'

const { outbox, placeOrder, closePool } = openShop()
const app = new Hono()
app.post('/orders', async (context) => {
  await placeOrder(await context.req.json())
  return context.body(null, 201)
})

await outbox.start()
const server = serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' }, ({ port }) =>
  say(`listening ${port}`),
)
process.once('SIGTERM', async () => {
  say('ending')
  await new Promise((answered) => server.close(answered))
  await outbox.stop()
  await closePool()
})
