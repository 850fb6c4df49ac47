import { afterAll, afterEach, beforeAll, beforeEach, describe, it, vi } from 'vitest'
import { busConformance } from '../../src/testing/bus-conformance/index.js'
import { type Broker, hasRabbitmq, rabbitmqWorld, startBroker } from '../support/rabbitmq.js'

// RabbitMQ takes many seconds to start, and more on a busy machine.
const TIMEOUT_MS = 60_000
vi.setConfig({ testTimeout: 2 * TIMEOUT_MS, hookTimeout: 2 * TIMEOUT_MS })

const runner = { describe, it, beforeEach, afterEach }

describe.skipIf(!hasRabbitmq())('RabbitMQ', () => {
  let broker: Broker

  beforeAll(async () => {
    broker = await startBroker()
  })

  afterAll(async () => {
    await broker?.stop()
  })

  busConformance({
    name: 'RabbitMQ with amqplib',
    runner,
    createWorld: () => rabbitmqWorld(broker),
    timeoutMs: TIMEOUT_MS,
  })

  busConformance({
    name: 'RabbitMQ with amqplib, one active consumer',
    runner,
    createWorld: () => rabbitmqWorld(broker, { singleActive: true }),
    timeoutMs: TIMEOUT_MS,
  })
})
