import { randomBytes } from 'node:crypto'
import { createRequire } from 'node:module'
import { type Admin, Kafka, logLevel } from 'kafkajs'
import { KafkaMissing, type KafkaServer, startKafka } from '../../scripts/kafka-server.mjs'
import { freePort } from '../../scripts/private-server.mjs'
import { kafkaBus, type PlatformaticClient } from '../../src/buses/kafka/index.js'
import type { BusWorld, DeadLetteredMessage, TestedBus } from '../../src/testing/bus-conformance/index.js'
import { type BlindProxy, startBlindProxy } from './kafka-proxy.js'
import { until } from './until.js'

export type KafkaLibrary = 'kafkajs' | '@platformatic/kafka'

/** More than one test ever has at a time; a bus that has vanished keeps its door for good. */
const DOORS = 14

interface Door {
  readonly port: number
  readonly proxy: BlindProxy
}

/** Undefined, with one loud line, where Kafka cannot be had: the one server that may be missing also in CI. */
export async function kafkaOrSkip<T>(start: () => Promise<T>): Promise<T | undefined> {
  try {
    return await start()
  } catch (error) {
    if (!(error instanceof KafkaMissing)) throw error
    console.error(
      `\nSKIPPED: the suites for Kafka. ${String(error)}\nIt needs Java 17 and, once, Maven with Maven Central.\n`,
    )
    return undefined
  }
}

/** A broker with proxies in front of it, for a file of tests. */
export class KafkaPlace {
  readonly server: KafkaServer
  readonly #free: Door[]
  readonly #all: readonly Door[]

  private constructor(server: KafkaServer, doors: readonly Door[]) {
    this.server = server
    this.#all = doors
    this.#free = [...doors]
  }

  static async start(doorCount = DOORS): Promise<KafkaPlace> {
    if (process.env.KAFKA_BROKERS)
      console.error('[services] KAFKA_BROKERS is not used here: these tests kill the broker')
    const ports: number[] = []
    while (ports.length < doorCount) {
      const port = await freePort()
      if (!ports.includes(port)) ports.push(port)
    }
    const doors: Door[] = []
    for (const port of ports) doors.push({ port, proxy: await startBlindProxy(port) })
    try {
      const server = await startKafka({
        doors: doors.map(({ port, proxy }) => ({ port, advertisedPort: proxy.port })),
      })
      return new KafkaPlace(server, doors)
    } catch (error) {
      await Promise.all(doors.map(({ proxy }) => proxy.close()))
      throw error
    }
  }

  async stop(): Promise<void> {
    await Promise.all(this.#all.map(({ proxy }) => proxy.close()))
    await this.server.stop()
  }

  take(): Door {
    const door = this.#free.shift()
    if (!door) throw new Error(`no door is left of ${this.#all.length}`)
    return door
  }

  giveBack(door: Door): void {
    door.proxy.accept()
    door.proxy.thaw()
    this.#free.push(door)
  }
}

export function createKafkaWorld(place: KafkaPlace, library: KafkaLibrary): BusWorld {
  const topic = `t-${randomBytes(6).toString('hex')}`
  const doors = new Map<TestedBus, Door>()
  const gone = new Set<TestedBus>()
  const each = (what: (proxy: BlindProxy) => void) => {
    for (const [bus, { proxy }] of doors) if (!gone.has(bus)) what(proxy)
  }
  const direct = kafkajsOf(place.server.brokers)
  return {
    groups: true,
    shares: true,
    orderAcrossConsumers: true,
    createBus: async (options) => {
      const door = place.take()
      const brokers = [`127.0.0.1:${door.proxy.port}`]
      const client = library === 'kafkajs' ? kafkajsOf(brokers) : platformaticOf(brokers)
      const bus = kafkaBus(client, { topic, partitions: 4, ...options })
      doors.set(bus, door)
      return bus
    },
    dispose: async () => {
      for (const [bus, door] of doors) if (!gone.has(bus)) place.giveBack(door)
    },
    deadLetters: (group) => readDead(direct, `${topic}.${group}.dead`),
    publishForeign: (body, attributes) => publishForeign(direct, topic, body, attributes),
    kill: () => place.server.kill(),
    restart: () => place.server.start(),
    cut: async () => each((proxy) => proxy.cut()),
    freeze: async () => {
      each((proxy) => proxy.freeze())
      return async () => each((proxy) => proxy.thaw())
    },
    vanish: async (bus) => {
      gone.add(bus)
      doors.get(bus)?.proxy.refuse()
    },
  }
}

export function kafkajsOf(brokers: string[]): Kafka {
  return new Kafka({ clientId: 'test', brokers, logLevel: logLevel.NOTHING })
}

const NODE_MAJOR = Number(process.versions.node.split('.')[0])
const require = createRequire(import.meta.url)
/** The newest @platformatic/kafka needs a newer Node than the library does: where there is one it lies there. */
const binaries = createRequire(new URL('../../scripts/binaries/package.json', import.meta.url))

async function asAdmin<T>(kafka: Kafka, work: (admin: Admin) => Promise<T>): Promise<T> {
  const admin = kafka.admin()
  await admin.connect()
  return work(admin).finally(() => admin.disconnect())
}

/** A topic that takes no large messages. */
export async function createNarrow(kafka: Kafka, topic: string): Promise<void> {
  const configEntries = [{ name: 'max.message.bytes', value: '20000' }]
  const topics = [{ topic, numPartitions: 1, configEntries }]
  await asAdmin(kafka, (admin) => admin.createTopics({ topics, waitForLeaders: false }))
}

/** Returns the committed offset of the group in the first partition. */
export async function committedOf(kafka: Kafka, topic: string, groupId: string): Promise<string | undefined> {
  const [found] = await asAdmin(kafka, (admin) => admin.fetchOffsets({ groupId, topics: [topic] }))
  return found?.partitions[0]?.offset
}

export function platformaticOf(bootstrapBrokers: string[]): PlatformaticClient {
  const { Admin, Consumer, Producer } = loadPlatformatic()
  return { Admin, Consumer, Producer, connection: { clientId: 'test', bootstrapBrokers } }
}

function loadPlatformatic(): PlatformaticClient {
  if (NODE_MAJOR < 22) return require('@platformatic/kafka')
  try {
    return binaries('@platformatic/kafka')
  } catch {
    return require('@platformatic/kafka')
  }
}

async function publishForeign(
  kafka: Kafka,
  topic: string,
  body: string,
  attributes: Readonly<Record<string, string>>,
): Promise<void> {
  const headers: Record<string, string> = {}
  for (const [name, value] of Object.entries(attributes)) headers[`ce_${name}`] = value
  const producer = kafka.producer({ createPartitioner: () => () => 0, allowAutoTopicCreation: false })
  await producer.connect()
  await producer.send({ topic, messages: [{ value: body, headers }] })
  await producer.disconnect()
}

/** Returns all messages of the topic, or an empty list if the topic does not exist. */
export async function readTopic(kafka: Kafka, topic: string) {
  const offsets = await asAdmin(kafka, async (admin) =>
    (await admin.listTopics()).includes(topic) ? offsetsOf(admin, topic) : [],
  )
  const total = offsets.reduce((sum, { high, low }) => sum + Number(high) - Number(low), 0)
  const found: { key: string; value: Buffer; headers: Record<string, string>; partition: number }[] = []
  if (total === 0) return found
  const consumer = kafka.consumer({ groupId: `read-${randomBytes(6).toString('hex')}`, maxWaitTimeInMs: 100 })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await new Promise<void>((resolve, reject) => {
    consumer.on('consumer.crash', ({ payload }) => reject(payload.error))
    const eachMessage = async ({ partition, message }: KafkajsMessage) => {
      const headers = Object.entries(message.headers ?? {}).map(([name, value]) => [name, String(value)])
      found.push({
        key: String(message.key),
        value: message.value ?? Buffer.alloc(0),
        headers: Object.fromEntries(headers),
        partition,
      })
      if (found.length === total) resolve()
    }
    consumer.run({ autoCommit: false, eachMessage }).catch(reject)
  })
  await consumer.disconnect()
  return found
}

/** A topic that was just created may have no leader yet, or one that the client does not know. */
async function offsetsOf(admin: Admin, topic: string) {
  let offsets: Awaited<ReturnType<Admin['fetchTopicOffsets']>> = []
  const hasLeader = async () => {
    try {
      offsets = await admin.fetchTopicOffsets(topic)
      return true
    } catch (error) {
      if (!/LEADER/.test(String((error as { type?: unknown }).type))) throw error
      return false
    }
  }
  await until(hasLeader, { what: `${topic} has a leader` })
  return offsets
}

type KafkajsMessage = Parameters<
  NonNullable<NonNullable<Parameters<ReturnType<Kafka['consumer']>['run']>[0]>['eachMessage']>
>[0]

async function readDead(kafka: Kafka, topic: string): Promise<readonly DeadLetteredMessage[]> {
  const records = await readTopic(kafka, topic)
  return records.map(({ value, headers }) => ({
    eventId: headers.ce_id,
    eventType: headers.ce_type,
    payload: value.toString(),
    group: headers.ce_deadgroup ?? '',
    handlers: headers.ce_deadhandlers ?? '',
    attempts: Number(headers.ce_deadattempts),
    error: headers.ce_deaderror ?? '',
  }))
}
