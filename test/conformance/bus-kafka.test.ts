import { afterAll, afterEach, beforeEach, describe, it } from 'vitest'
import { busConformance } from '../../src/testing/bus-conformance/index.js'
import { createKafkaWorld, KafkaPlace, kafkaOrSkip } from '../support/kafka.js'

/** A broker that was killed takes seconds to come back, and so does a group that waits for a member that is gone. */
const SLOW_MS = 120_000
const runner = {
  describe,
  it: (name: string, body: (...context: unknown[]) => Promise<void>) =>
    it(name, { timeout: SLOW_MS }, (context) => body(context)),
  beforeEach,
  afterEach,
}
/** `npm test` runs on two Nodes: the newest @platformatic/kafka needs the newer one, and each takes long. */
const LIBRARIES = { first: ['kafkajs'], second: ['@platformatic/kafka'] } as const
const libraries = LIBRARIES[process.env.AFTERCOMMIT_RUN as keyof typeof LIBRARIES] ?? [
  'kafkajs',
  '@platformatic/kafka',
]
const place = await kafkaOrSkip(() => KafkaPlace.start())

describe.skipIf(!place)('Kafka', () => {
  afterAll(() => place?.stop())
  for (const library of libraries) {
    busConformance({
      name: `Kafka with ${library}`,
      runner,
      createWorld: async () => createKafkaWorld(place as KafkaPlace, library),
      timeoutMs: 60_000,
    })
  }
})
