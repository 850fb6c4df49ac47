import {
  type Feed,
  type FeedEvents,
  type FeedPlan,
  type FetchedRecord,
  hashOf,
  type KafkaDriver,
  type KafkaProducer,
  TOPIC_SETTINGS,
  type TopicPlan,
  waitForLeaders,
  withinTime,
} from './client.js'
import { hasName } from './errors.js'
import { messageOf } from './message.js'

/** The classes of @platformatic/kafka, and the options for their constructors: `clientId`, `bootstrapBrokers`, `tls`, … */
export interface PlatformaticClient {
  readonly Producer: new (options: never) => PlatformaticProducer
  readonly Consumer: new (options: never) => PlatformaticConsumer
  readonly Admin: new (options: never) => PlatformaticAdmin
  readonly connection: PlatformaticConnection
}

export interface PlatformaticConnection {
  readonly clientId: string
  readonly bootstrapBrokers: readonly string[] | readonly { readonly host: string; readonly port: number }[]
  readonly [option: string]: unknown
}

interface Closable {
  close(force?: boolean): Promise<void>
  on(event: never, listener: (...args: never[]) => void): unknown
}

interface PlatformaticProducer extends Closable {
  send(request: never): Promise<unknown>
}

interface PlatformaticAdmin extends Closable {
  listTopics(): Promise<string[]>
  createTopics(request: {
    topics: string[]
    partitions: number
    replicas: number
    configs: { name: string; value: string }[]
  }): Promise<unknown>
  metadata(request: { topics: string[]; forceUpdate: boolean }): Promise<{
    readonly topics: ReadonlyMap<string, { readonly partitions: readonly { readonly leader: number }[] }>
  }>
}

interface PlatformaticConsumer extends Closable {
  consume(request: never): Promise<PlatformaticStream>
  commit(request: {
    offsets: { topic: string; partition: number; offset: bigint; leaderEpoch: number }[]
  }): Promise<void>
}

interface PlatformaticStream {
  on(event: never, listener: (...args: never[]) => void): unknown
  read(): unknown
  destroy(): unknown
}

interface PlatformaticMessage {
  readonly partition: number
  readonly offset: bigint
  readonly value: Buffer | null | undefined
  readonly headers: ReadonlyMap<Buffer, Buffer | undefined>
}

export function platformaticDriver(client: PlatformaticClient): KafkaDriver {
  return {
    prepareTopic: (topic, timeoutMs) => {
      const admin = created(client.Admin, client)
      return withinTime(timeoutMs, prepareTopic(admin, topic), () => admin.close())
    },
    openProducer: async () => openProducer(client),
    openFeed: async (plan, events) => {
      const feed = new PlatformaticFeed(client, plan, events)
      await feed.open()
      return feed
    },
  }
}

/** Retry options. Requests for a new partition fail at first, and the default delay of 1 second is too long for that. */
const PATIENCE = { retries: 10, retryDelay: 100 }

const NO_KEY = Buffer.alloc(0)

/** Creates a client with an error listener. Without a listener, an error between two calls would end the process. */
function created<T extends Closable>(
  Kind: new (options: never) => T,
  { connection }: PlatformaticClient,
  options: object = {},
): T {
  const client = new Kind({ ...PATIENCE, ...connection, ...options } as never)
  listen(client, 'error', () => {})
  return client
}

async function prepareTopic(admin: PlatformaticAdmin, topic: TopicPlan): Promise<void> {
  if (!(await admin.listTopics()).includes(topic.name)) await createTopic(admin, topic)
  await waitForLeaders(topic.name, async () => {
    const { topics } = await admin.metadata({ topics: [topic.name], forceUpdate: true })
    return (topics.get(topic.name)?.partitions ?? []).map(({ leader }) => leader)
  })
}

async function createTopic(admin: PlatformaticAdmin, { name, partitions, replicas }: TopicPlan) {
  try {
    await admin.createTopics({ topics: [name], partitions, replicas, configs: TOPIC_SETTINGS })
  } catch (error) {
    if (!hasName(error, 'TOPIC_ALREADY_EXISTS')) throw error
  }
}

function openProducer(client: PlatformaticClient): KafkaProducer {
  const producer = created(client.Producer, client, { idempotent: true, autocreateTopics: false })
  return {
    send: async (topic, records) => {
      await producer.send({
        messages: records.map(({ key, value, headers }) => ({ topic, key, value, headers })),
        acks: -1,
        partitioner,
      } as never)
    },
    close: () => producer.close(true).catch(() => {}),
  }
}

function partitioner(_message: unknown, key: Buffer | undefined): number {
  return hashOf(key ?? NO_KEY)
}

class PlatformaticFeed implements Feed {
  readonly #consumer: PlatformaticConsumer
  readonly #plan: FeedPlan
  readonly #events: FeedEvents
  #stream: PlatformaticStream | null = null
  #streamNumber = 0
  #isOpen = false
  #isClosed = false

  constructor(client: PlatformaticClient, plan: FeedPlan, events: FeedEvents) {
    this.#plan = plan
    this.#events = events
    this.#consumer = created(client.Consumer, client, { ...this.#groupOptions(), groupId: plan.groupId })
  }

  async open(): Promise<void> {
    const { onRebalance, onAlive } = this.#events
    listen(this.#consumer, 'error', (error) => this.#end(error))
    listen(this.#consumer, 'consumer:group:rebalance', () => onRebalance())
    listen(this.#consumer, 'consumer:heartbeat:end', () => onAlive())
    listen(this.#consumer, 'consumer:group:join', () => {
      if (this.#isOpen) this.#restream()
    })
    try {
      await this.#openStream()
      this.#isOpen = true
    } catch (error) {
      void this.close()
      throw error
    }
  }

  async commit(offsets: ReadonlyMap<number, bigint>): Promise<void> {
    const { topic } = this.#plan
    await this.#consumer.commit({
      offsets: [...offsets].map(([partition, offset]) => ({ topic, partition, offset, leaderEpoch: -1 })),
    })
  }

  async close(): Promise<void> {
    this.#isClosed = true
    this.#streamNumber++
    this.#stream?.destroy()
    await this.#consumer.close(true).catch(() => {})
  }

  #groupOptions() {
    const { sessionMs } = this.#plan
    return {
      autocommit: false,
      sessionTimeout: sessionMs,
      rebalanceTimeout: sessionMs,
      heartbeatInterval: Math.min(3_000, Math.ceil(sessionMs / 10)),
      maxWaitTime: 500,
    }
  }

  /**
   * Replaces the stream. The old stream would continue at its own position in partitions without a commit, and may contain
   * records of partitions that now belong to another member.
   */
  #restream(): void {
    this.#stream?.destroy()
    this.#stream = null
    this.#openStream().catch((error) => this.#end(error))
  }

  async #openStream(): Promise<void> {
    const number = ++this.#streamNumber
    this.#events.onAssigned()
    const stream = await this.#consumer.consume({
      ...this.#groupOptions(),
      topics: [this.#plan.topic],
      mode: 'committed',
      fallbackMode: 'earliest',
    } as never)
    listen(stream, 'error', (error) => number === this.#streamNumber && this.#end(error))
    if (number !== this.#streamNumber) {
      stream.destroy()
      return
    }
    this.#stream = stream
    let isWaiting = false
    const drain = async () => {
      if (isWaiting) return
      isWaiting = true
      await this.#events.capacity()
      isWaiting = false
      if (number !== this.#streamNumber) return
      if (this.#drain(stream)) await drain()
    }
    listen(stream, 'readable', () => void drain())
  }

  /** Returns whether there were records. */
  #drain(stream: PlatformaticStream): boolean {
    const records: FetchedRecord[] = []
    for (let message = stream.read(); message !== null; message = stream.read()) {
      const { partition, offset, value, headers } = message as PlatformaticMessage
      records.push({ partition, offset, message: messageOf(namesOf(headers), value) })
    }
    if (records.length > 0) this.#events.onRecords(records)
    return records.length > 0
  }

  #end(error: unknown): void {
    if (!this.#isClosed && this.#isOpen) this.#events.onEnd(error)
  }
}

function* namesOf(headers: ReadonlyMap<Buffer, Buffer | undefined>): Generator<[string, Buffer | undefined]> {
  for (const [name, value] of headers) yield [String(name), value]
}

function listen(
  emitter: { on(event: never, listener: (...args: never[]) => void): unknown },
  event: string,
  listener: (payload: unknown) => void,
): void {
  emitter.on(event as never, listener)
}
