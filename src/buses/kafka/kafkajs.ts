import {
  type Feed,
  type FeedEvents,
  type FeedPlan,
  hashOf,
  type KafkaDriver,
  type KafkaProducer,
  type KafkaRecord,
  TOPIC_SETTINGS,
  type TopicPlan,
  waitForLeaders,
  withinTime,
} from './client.js'
import { messageOf } from './message.js'

/** The methods of a `Kafka` of kafkajs that the bus calls. */
export interface KafkajsClient {
  producer(options: {
    idempotent: boolean
    allowAutoTopicCreation: boolean
    createPartitioner: () => (choice: PartitionerChoice) => number
  }): KafkajsProducer
  consumer(options: {
    groupId: string
    sessionTimeout: number
    rebalanceTimeout: number
    heartbeatInterval: number
    maxWaitTimeInMs: number
    allowAutoTopicCreation: boolean
    retry: { restartOnFailure: () => Promise<boolean>; retries: number }
  }): KafkajsConsumer
  admin(): KafkajsAdmin
}

interface PartitionerChoice {
  readonly message: { readonly key?: Buffer | string | null | undefined }
  readonly partitionMetadata: { readonly length: number }
}

interface KafkajsProducer {
  connect(): Promise<void>
  disconnect(): Promise<void>
  send(request: {
    topic: string
    acks: number
    timeout: number
    messages: { key: Buffer; value: Buffer; headers: Record<string, Buffer> }[]
  }): Promise<unknown>
}

interface KafkajsAdmin {
  connect(): Promise<void>
  disconnect(): Promise<void>
  listTopics(): Promise<string[]>
  createTopics(request: {
    topics: {
      topic: string
      numPartitions: number
      replicationFactor: number
      configEntries: { name: string; value: string }[]
    }[]
    waitForLeaders: boolean
  }): Promise<boolean>
  fetchTopicMetadata(request: { topics: string[] }): Promise<{
    topics: { partitions: { leader: number }[] }[]
  }>
}

interface KafkajsConsumer {
  connect(): Promise<void>
  disconnect(): Promise<void>
  subscribe(request: { topics: string[]; fromBeginning: boolean }): Promise<void>
  run(request: { autoCommit: boolean; eachBatch: (payload: KafkajsBatch) => Promise<void> }): Promise<void>
  commitOffsets(offsets: { topic: string; partition: number; offset: string }[]): Promise<void>
  on(event: never, listener: (event: unknown) => void): unknown
}

interface KafkajsBatch {
  readonly batch: {
    readonly partition: number
    readonly messages: readonly {
      readonly offset: string
      readonly value: Buffer | null
      readonly headers?: Readonly<Record<string, HeaderValue | HeaderValue[] | undefined>> | undefined
    }[]
  }
  isRunning(): boolean
  heartbeat(): Promise<void>
}

type HeaderValue = Buffer | string

export function kafkajsDriver(client: KafkajsClient): KafkaDriver {
  return {
    prepareTopic: (topic, timeoutMs) => {
      const admin = client.admin()
      return withinTime(timeoutMs, prepareTopic(admin, topic), () => admin.disconnect())
    },
    openProducer: (timeoutMs) => openProducer(client, timeoutMs),
    openFeed: async (plan, events) => {
      const feed = new KafkajsFeed(client, plan, events)
      await feed.open()
      return feed
    },
  }
}

async function prepareTopic(admin: KafkajsAdmin, { name, partitions, replicas }: TopicPlan): Promise<void> {
  await admin.connect()
  if (!(await admin.listTopics()).includes(name)) {
    const topic = { topic: name, numPartitions: partitions, replicationFactor: replicas }
    await admin.createTopics({
      topics: [{ ...topic, configEntries: TOPIC_SETTINGS }],
      waitForLeaders: false,
    })
  }
  await waitForLeaders(name, async () => {
    const { topics } = await admin.fetchTopicMetadata({ topics: [name] })
    return topics.flatMap((topic) => topic.partitions.map(({ leader }) => leader))
  })
}

/** Thrown inside kafkajs to end a send. Otherwise kafkajs would retry the send, and reconnect for that. */
class ProducerClosed extends Error {
  override readonly name = 'ProducerClosed'
  readonly retriable = false
}

async function openProducer(client: KafkajsClient, timeoutMs: number): Promise<KafkaProducer> {
  let isClosed = false
  let sending: Promise<unknown> = Promise.resolve()
  const producer = client.producer({
    idempotent: true,
    allowAutoTopicCreation: false,
    // kafkajs calls the partitioner before each attempt. This is the only place where a send can be ended.
    createPartitioner: () => (choice) => {
      if (isClosed) throw new ProducerClosed('the producer was closed')
      return hashOf(Buffer.from(choice.message.key ?? '')) % choice.partitionMetadata.length
    },
  })
  const disconnect = () => producer.disconnect().catch(() => {})
  try {
    await producer.connect()
  } catch (error) {
    void disconnect()
    throw error
  }
  return {
    send: async (topic, records) => {
      sending = producer.send({ topic, acks: -1, timeout: timeoutMs, messages: records.map(kafkajsMessage) })
      await sending
    },
    close: async () => {
      isClosed = true
      await disconnect()
      // A pending send may have connected again.
      await sending.then(
        () => {},
        () => disconnect(),
      )
    },
  }
}

function kafkajsMessage({ key, value, headers }: KafkaRecord) {
  const named: Record<string, Buffer> = {}
  for (const [name, text] of headers) named[name.toString()] = text
  return { key, value, headers: named }
}

class KafkajsFeed implements Feed {
  readonly #consumer: KafkajsConsumer
  readonly #plan: FeedPlan
  readonly #events: FeedEvents
  readonly #heartbeatMs: number
  #failure: { readonly error: unknown } | null = null
  #isOpen = false

  constructor(client: KafkajsClient, plan: FeedPlan, events: FeedEvents) {
    this.#plan = plan
    this.#events = events
    this.#heartbeatMs = Math.min(3_000, Math.ceil(plan.sessionMs / 10))
    this.#consumer = client.consumer({
      groupId: plan.groupId,
      sessionTimeout: plan.sessionMs,
      rebalanceTimeout: plan.sessionMs,
      heartbeatInterval: this.#heartbeatMs,
      // kafkajs sends heartbeats only between two fetches.
      maxWaitTimeInMs: Math.min(500, this.#heartbeatMs),
      allowAutoTopicCreation: false,
      // The bus replaces a failed consumer itself.
      retry: { restartOnFailure: async () => false, retries: 5 },
    })
  }

  async open(): Promise<void> {
    this.#listen()
    try {
      await this.#consumer.connect()
      await this.#consumer.subscribe({ topics: [this.#plan.topic], fromBeginning: true })
      await this.#consumer.run({ autoCommit: false, eachBatch: (batch) => this.#onBatch(batch) })
      if (this.#failure) throw this.#failure.error
      this.#isOpen = true
    } catch (error) {
      quietly(this.#consumer.disconnect())
      throw error
    }
  }

  async commit(offsets: ReadonlyMap<number, bigint>): Promise<void> {
    const { topic } = this.#plan
    await this.#consumer.commitOffsets(
      [...offsets].map(([partition, offset]) => ({ topic, partition, offset: String(offset) })),
    )
  }

  async close(): Promise<void> {
    await this.#consumer.disconnect().catch(() => {})
  }

  #listen(): void {
    const { onAssigned, onRebalance, onAlive, onEnd } = this.#events
    this.#on('consumer.group_join', onAssigned)
    this.#on('consumer.rebalancing', onRebalance)
    this.#on('consumer.heartbeat', onAlive)
    this.#on('consumer.crash', (event) => {
      const { error } = (event as { payload: { error: unknown } }).payload
      this.#failure = { error }
      if (this.#isOpen) onEnd(error)
    })
  }

  #on(event: string, listener: (event: unknown) => void): void {
    this.#consumer.on(event as never, listener)
  }

  async #onBatch({ batch, heartbeat, isRunning }: KafkajsBatch): Promise<void> {
    const { partition } = batch
    this.#events.onRecords(
      batch.messages.map(({ offset, value, headers }) => ({
        partition,
        offset: BigInt(offset),
        message: messageOf(headersIn(headers ?? {}), value),
      })),
    )
    let hasCapacity = false
    const capacity = this.#events.capacity().then(() => {
      hasCapacity = true
    })
    await heartbeat()
    while (!hasCapacity && isRunning()) {
      await atMost(this.#heartbeatMs, capacity)
      await heartbeat()
    }
  }
}

function* headersIn(
  headers: Readonly<Record<string, HeaderValue | HeaderValue[] | undefined>>,
): Generator<readonly [string, HeaderValue | undefined]> {
  for (const [name, value] of Object.entries(headers)) yield [name, Array.isArray(value) ? value[0] : value]
}

async function atMost(ms: number, work: Promise<void>): Promise<void> {
  let timer: NodeJS.Timeout | undefined
  const over = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, ms)
  })
  await Promise.race([work, over])
  clearTimeout(timer)
}

function quietly(work: Promise<unknown>): void {
  work.catch(() => {})
}
