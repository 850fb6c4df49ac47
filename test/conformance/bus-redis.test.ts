import { afterAll, afterEach, beforeEach, describe, it } from 'vitest'
import { busConformance } from '../../src/testing/bus-conformance/index.js'
import { givenRedis, REDIS_CLIENTS, redisWorld } from '../support/redis.js'

const runner = { describe, it, beforeEach, afterEach }
const given = await givenRedis()
afterAll(() => given?.stop())

describe.skipIf(!given)('Redis Streams', () => {
  for (const [library, open] of Object.entries(REDIS_CLIENTS)) {
    busConformance({
      name: `Redis Streams with ${library}`,
      runner,
      createWorld: () => {
        if (!given) throw new Error('there is no Redis')
        return redisWorld(given, open)
      },
    })
  }
})
