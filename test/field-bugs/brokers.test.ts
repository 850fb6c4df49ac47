import { createRequire } from 'node:module'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { type RabbitmqServer, startRabbitmq } from '../../scripts/rabbitmq-server.mjs'
import { rabbitmqBus } from '../../src/buses/rabbitmq/index.js'
import { silentLogger } from '../../src/index.js'
import { startProxy } from '../support/proxy.js'

const amqp = createRequire(import.meta.url)('amqplib') as typeof import('amqplib')

let server: RabbitmqServer
beforeAll(async () => {
  server = await startRabbitmq()
}, 120_000)
afterAll(() => server?.stop(), 60_000)

it('amqplib#191: a publish whose connection closes before its confirm fails, and does not hang', {
  timeout: 60_000,
}, async () => {
  const proxy = await startProxy(server.url)
  const bus = rabbitmqBus(() => amqp.connect(proxy.url), { confirmTimeoutMs: 20_000, logger: silentLogger })
  try {
    await bus.publish({ type: 'a' })
    proxy.freeze('to-client')
    const publishing = bus.publish({ type: 'a' }).catch((error) => error)
    proxy.thaw()
    // The silent connection was reset: nobody will ever confirm on it.
    expect(await publishing).toMatchObject({
      code: 'NOT_CONFIRMED',
      errors: [{ code: 'BROKER_UNAVAILABLE' }],
    })
    await bus.publish({ type: 'a' })
  } finally {
    await bus.stop()
    await proxy.close()
  }
})
