import { spawnSync } from 'node:child_process'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'
import { startKafka } from '../../scripts/kafka-server.mjs'
import { startNats } from '../../scripts/nats-server.mjs'
import { startRabbitmq } from '../../scripts/rabbitmq-server.mjs'
import { startRedis } from '../../scripts/redis-server.mjs'
import { freshDatabase } from '../support/database.js'
import { kafkaOrSkip } from '../support/kafka.js'
import { announced, CompiledSnippets, ORDERS, snippetsOf } from './snippets.js'

const PAGES = [
  'docs/relay.md',
  'docs/consuming.md',
  ...['redis', 'nats', 'rabbitmq', 'kafka'].map((name) => `docs/brokers/${name}.md`),
]

/** Prevents the warning that kafkajs causes on Node 24, and no other. */
const KAFKAJS_TIMERS = new URL('kafkajs-timers.mjs', import.meta.url).href

interface Broker {
  readonly env: Readonly<Record<string, string>>
  stop(): Promise<void>
}

const BROKERS: Readonly<Record<string, () => Promise<Broker | undefined>>> = {
  redis: async () => {
    const server = await startRedis()
    return { env: { REDIS_URL: server.url }, stop: () => server.stop() }
  },
  nats: async () => {
    const server = await startNats()
    return { env: { NATS_URL: server.url }, stop: () => server.stop() }
  },
  rabbitmq: async () => {
    const server = await startRabbitmq()
    return { env: { AMQP_URL: server.url }, stop: () => server.stop() }
  },
  kafka: () =>
    kafkaOrSkip(async () => {
      const server = await startKafka()
      const env = { KAFKA_BROKERS: server.brokers.join(','), NODE_OPTIONS: `--import=${KAFKAJS_TIMERS}` }
      return { env, stop: () => server.stop() }
    }),
}

const programs = PAGES.flatMap((page) => snippetsOf(page)).filter(({ mark }) => mark.startsWith('run '))

it('the preload for kafkajs leaves the warnings about negative delays in other code', () => {
  const warnings = (...options: string[]) => {
    const args = [...options, '--eval', 'setTimeout(() => {}, -5)']
    return spawnSync(process.execPath, args, { encoding: 'utf8' }).stderr.replace(/^\(node:\d+\)/, '(node)')
  }
  expect(warnings(`--import=${KAFKAJS_TIMERS}`)).toBe(warnings())
})

describe('the programs in docs/brokers', () => {
  let compiled: CompiledSnippets
  beforeAll(() => {
    compiled = new CompiledSnippets(programs)
  })
  afterAll(() => compiled?.remove())

  it('are one for each page', () => {
    expect(programs.map(({ place }) => place.split(':')[0])).toEqual(PAGES)
  })

  for (const [name, start] of Object.entries(BROKERS)) {
    describe(name, () => {
      let broker: Broker | undefined
      beforeAll(async () => {
        broker = await start()
      }, 300_000)
      afterAll(() => broker?.stop(), 60_000)

      for (const program of programs.filter(({ mark }) => mark === `run ${name}`)) {
        it(`${program.place} runs and prints what it says`, { timeout: 60_000 }, async ({ skip }) => {
          if (!broker) return skip()
          const database = await freshDatabase(inject('postgresUrl'))
          const client = new pg.Client({ connectionString: database.url })
          try {
            await client.connect()
            await client.query(ORDERS)
            const ran = await compiled.run(program, database.url, broker.env)
            expect(ran).toEqual({ code: 0, printed: announced(program), stderr: '' })
          } finally {
            await client.end()
            await database.drop()
          }
        })
      }
    })
  }
})
