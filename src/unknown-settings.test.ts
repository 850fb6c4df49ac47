import { describe, expect, it } from 'vitest'
import { readBusOptions } from './bus/settings.js'
import { kafkaBus } from './buses/kafka/index.js'
import { natsBus } from './buses/nats/index.js'
import { rabbitmqBus } from './buses/rabbitmq/index.js'
import { redisBus } from './buses/redis/index.js'
import { AftercommitError } from './core/errors.js'
import { exactlyOnce, idempotent, memoryProcessedEvents, processedEvents } from './inbox/index.js'
import { type BusOptions, createOutbox, defineEvent, EventEnvelope, toCloudEvent } from './index.js'
import { OnEvent } from './integrations/on-event.js'
import { jsonLogger } from './observe/logger.js'
import { otelTracer } from './observe/otel.js'
import { prometheusMetrics } from './observe/prometheus.js'
import { memoryStore } from './stores/memory/index.js'
import { mysqlStore } from './stores/mysql/index.js'
import { postgresStore } from './stores/postgres/index.js'
import { sqliteStore } from './stores/sqlite/index.js'
import { createTestOutbox } from './testing/index.js'
import { kyselyTransactions } from './transactions/kysely.js'

const handle = () => {}
const outbox = () => createTestOutbox()
const silent = { level: 'error' } as const
const otelApi = { trace: { getTracer: () => ({}) }, context: { with: () => {} }, ROOT_CONTEXT: {} } as never

type Place = [place: string, given: string, meant: string, make: (settings: never) => unknown]

/** Places that take an object of settings, with a misspelled name and the name that is suggested. */
const WHOLE: Place[] = [
  ['dispatcher', 'concurency', 'concurrency', (dispatcher) => createTestOutbox({ dispatcher })],
  ['poller', 'batchsize', 'batchSize', (poller) => createTestOutbox({ poller })],
  ['retry', 'maxAttempt', 'maxAttempts', (retry) => createTestOutbox({ retry })],
  ['ordering', 'ondead', 'onDead', (ordering) => createTestOutbox({ ordering })],
  ['retention', 'doneMS', 'doneMs', (retention) => createTestOutbox({ retention })],
  ['handler "h"', 'timeoutMS', 'timeoutMs', (more) => outbox().on('a', 'h', handle, more)],
  ['retry of handler "h"', 'maxAttempt', 'maxAttempts', (retry) => outbox().on('a', 'h', handle, { retry })],
  ['@OnEvent()', 'exclusiv', 'exclusive', (more) => OnEvent('a', more)],
  [
    'relay()',
    'batchsize',
    'batchSize',
    (more) => outbox().relay({ publishAll: async () => [] } as never, more),
  ],
  ['health()', 'maxlag', 'maxLagMs', (more) => outbox().health(more)],
  ['list()', 'evenType', 'eventType', (filter) => outbox().deadLetters.list(filter)],
  ['options', 'limits', 'limit', (more) => outbox().deadLetters.retry({ all: true }, more)],
  ['dead letters', 'evenType', 'eventType', (selection) => outbox().deadLetters.discard(selection)],
  ['defineEvent()', 'orderd', 'ordered', (more) => defineEvent('a', more)],
  ['postgresStore()', 'shema', 'schema', (more) => postgresStore({}, more)],
  ['mysqlStore()', 'databse', 'database', (more) => mysqlStore({}, more)],
  ['sqliteStore()', 'tabel', 'table', (more) => sqliteStore(() => ({}) as never, more)],
  ['memoryStore()', 'clok', 'clock', (more) => memoryStore(more)],
  ['memoryProcessedEvents()', 'clok', 'clock', (more) => memoryProcessedEvents(more)],
  ['a bus', 'gruop', 'group', (more) => readBusOptions<BusOptions>(more, [])],
  ['a bus', 'partition', 'partitions', (more) => kafkaBus({} as never, more)],
  ['a bus', 'replica', 'replicas', (more) => natsBus({} as never, more)],
  ['a bus', 'exchnage', 'exchange', (more) => rabbitmqBus(async () => ({}) as never, more)],
  ['a bus', 'maxlength', 'maxLength', (more) => redisBus({} as never, more)],
  ['idempotent()', 'nmae', 'name', (more) => idempotent(handle, processedEvents(outbox()), more)],
  ['exactlyOnce()', 'nmae', 'name', (more) => exactlyOnce(handle, outbox(), more)],
  ['prometheusMetrics()', 'maxserie', 'maxSeries', (more) => prometheusMetrics(more)],
  ['otelTracer()', 'nmae', 'name', (more) => otelTracer(otelApi, more)],
  [
    'options of a CloudEvent',
    'sorce',
    'source',
    (more) => toCloudEvent(EventEnvelope.create({ eventType: 'a' }), more),
  ],
  ['createOutbox()', 'loger', 'logger', (settings) => createOutbox(settings)],
  ['a transaction of Kysely', 'isolatonLevel', 'isolationLevel', (more) => kysely(async () => {}, more)],
]

const kysely = kyselyTransactions(outbox(), { transaction: () => ({}) } as never)

/** Places where the misspelled name stands beside settings that are needed. */
const MERGED: Place[] = [
  [
    'event of handler "h"',
    'types',
    'type',
    (more: object) => outbox().on({ aggregateType: 'a', type: 'b', ...more }, 'h', handle),
  ],
  [
    'handler "h"',
    'waitMS',
    'waitMs',
    (more: object) => outbox().onBatch('a', 'h', { size: 2, ...more }, handle),
  ],
  ['jsonLogger()', 'levle', 'level', (more: object) => jsonLogger({ ...silent, ...more })],
]

async function refusal(make: () => unknown): Promise<Error> {
  try {
    await make()
  } catch (error) {
    return error as Error
  }
  return expect.fail('the settings were accepted')
}

describe('a misspelled name', () => {
  it.each([...WHOLE, ...MERGED])(
    'in the settings of %s is refused: %s is probably %s',
    async (place, given, meant, make) => {
      const error = await refusal(() => make({ [given]: 1 } as never))
      expect(error).toBeInstanceOf(AftercommitError)
      expect(error.message).toContain(`${given}: ${place} has no such setting. Did you mean ${meant}?`)
    },
  )
})

describe.each<[string, () => unknown]>([
  ['null', () => null],
  ['a number', () => 5],
  ['an array', () => []],
  ['a Map', () => new Map()],
  [
    'a revoked proxy',
    () => {
      const { proxy, revoke } = Proxy.revocable({}, {})
      revoke()
      return proxy
    },
  ],
])('%s', (_what, value) => {
  it.each(WHOLE)('is refused as the settings of %s', async (_place, _given, _meant, make) => {
    expect(await refusal(() => make(value() as never))).toBeInstanceOf(AftercommitError)
  })
})
