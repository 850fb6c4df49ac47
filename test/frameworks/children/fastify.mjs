import { outboxPlugin } from 'aftercommit/fastify'
import fastify from 'fastify'
import fp from 'fastify-plugin'
import { openShop, say } from './shop.mjs'

const { outbox, placeOrder, closePool } = openShop()
const server = fastify()
server.register(outboxPlugin, { outbox })
// Registered behind the outbox: Fastify closes the last one first.
server.register(fp(async (instance) => instance.addHook('onClose', closePool)))
server.post('/orders', async (request, reply) => {
  await placeOrder(request.body)
  return reply.code(201).send()
})

await server.listen({ port: 0, host: '127.0.0.1' })
say(`listening ${server.server.address().port}`)
process.once('SIGTERM', () => {
  say('ending')
  void server.close()
})
