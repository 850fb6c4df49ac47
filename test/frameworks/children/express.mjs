import express from 'express'
import { openShop, say } from './shop.mjs'

const { outbox, placeOrder, closePool } = openShop()
const app = express()
app.post('/orders', express.json(), async (request, response) => {
  await placeOrder(request.body)
  response.sendStatus(201)
})

await outbox.start()
const server = app.listen(0, '127.0.0.1', () => say(`listening ${server.address().port}`))
process.once('SIGTERM', async () => {
  say('ending')
  await new Promise((answered) => server.close(answered))
  await outbox.stop()
  await closePool()
})
