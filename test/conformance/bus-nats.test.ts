import { afterAll, afterEach, beforeEach, describe, it } from 'vitest'
import { busConformance } from '../../src/testing/bus-conformance/index.js'
import { createNatsWorld, type NatsServer, startNatsOrSkip } from '../support/nats.js'

const server = await startNatsOrSkip()

describe.skipIf(!server)('NATS', () => {
  afterAll(() => server?.stop())

  busConformance({
    name: 'NATS JetStream with @nats-io/transport-node',
    runner: { describe, it, beforeEach, afterEach },
    createWorld: () => createNatsWorld(server as NatsServer),
  })
})
