import type { BrokerBus } from '../bus/broker-bus.js'
import type { BusOptions } from '../bus/settings.js'
import { type KafkajsClient, kafkaBus } from '../buses/kafka/index.js'
import { type NatsConnection, natsBus } from '../buses/nats/index.js'
import { type AmqpConnection, rabbitmqBus } from '../buses/rabbitmq/index.js'
import { type RedisClient, redisBus } from '../buses/redis/index.js'
import type { Logger } from '../observe/logger.js'
import { loadDriver, member } from './drivers.js'
import { explainUrl, UsageError } from './errors.js'
import { hideUrlParts, useUrl } from './url-parts.js'

export interface Broker {
  readonly bus: BrokerBus
  /** Its kind; the URL may hold a password. */
  readonly title: string
  close(): Promise<void>
}

interface BrokerOptions {
  /** The stream, exchange or topic. */
  readonly destination: string
  readonly logger: Logger
}

type Make<T> = new (...args: readonly unknown[]) => T

/** A bus on the broker of a URL, with the driver that the project has. */
export async function openBroker(url: string, options: BrokerOptions): Promise<Broker> {
  const scheme = /^([a-z]+):\/\//.exec(url)?.[1] ?? ''
  const open = Object.hasOwn(OPEN, scheme) ? OPEN[scheme] : undefined
  if (!open)
    throw new UsageError(
      '--to must begin with redis://, rediss://, nats://, tls://, amqp://, amqps:// or kafka://.',
    )
  useUrl('broker', url)
  return open(url, options).catch((error) => {
    throw explainUrl('The URL of --to', error)
  })
}

type Open = (url: string, options: BrokerOptions) => Promise<Broker>

const OPEN: Readonly<Record<string, Open>> = {
  redis: openRedis,
  rediss: openRedis,
  nats: openNats,
  tls: openNats,
  amqp: openRabbitmq,
  amqps: openRabbitmq,
  kafka: openKafka,
}

/** Redis clients of both libraries tell of a lost connection by this event, and connect again. */
interface Emitter {
  on(event: 'error', listener: () => void): unknown
}

async function openRedis(url: string, { destination, logger }: BrokerOptions): Promise<Broker> {
  const { name, modules } = await loadDriver('Redis', [['redis'], ['ioredis']])
  const options = { stream: destination, logger, redact: hideUrlParts }
  if (name === 'ioredis') {
    const client = new (member<Make<RedisClient & Emitter & { disconnect(): void }>>(modules[0], 'Redis'))(
      url,
    )
    client.on('error', () => {})
    return { title: 'Redis', ...closing(redisBus(client, options), async () => client.disconnect()) }
  }
  type Client = RedisClient & Emitter & { connect(): Promise<unknown>; destroy(): void }
  const client = member<(options: object) => Client>(modules[0], 'createClient')({ url })
  client.on('error', () => {})
  // A server that is down is tried again and again; meanwhile the relay waits, and says so.
  client.connect().catch(() => {})
  return { title: 'Redis', ...closing(redisBus(client, options), async () => client.destroy()) }
}

async function openNats(url: string, { destination, logger }: BrokerOptions): Promise<Broker> {
  const { modules } = await loadDriver('NATS', [['@nats-io/transport-node']])
  type Connect = (options: object) => Promise<NatsConnection & { close(): Promise<void> }>
  const servers = url.split(',')
  const connection = await member<Connect>(
    modules[0],
    'connect',
  )({
    servers,
    maxReconnectAttempts: -1,
    waitOnFirstConnect: true,
    pingInterval: 10_000,
  })
  const bus = natsBus(connection, { stream: destination, logger, redact: hideUrlParts })
  return { title: 'NATS JetStream', ...closing(bus, () => connection.close()) }
}

async function openRabbitmq(url: string, { destination, logger }: BrokerOptions): Promise<Broker> {
  const { modules } = await loadDriver('RabbitMQ', [['amqplib']])
  const connect = member<(url: string) => Promise<AmqpConnection>>(modules[0], 'connect')
  const bus = rabbitmqBus(() => connect(url), { exchange: destination, logger, redact: hideUrlParts })
  return { title: 'RabbitMQ', ...closing(bus) }
}

async function openKafka(url: string, { destination, logger }: BrokerOptions): Promise<Broker> {
  const brokers = url.slice('kafka://'.length).replace(/\/$/, '').split(',')
  if (brokers.some((broker) => !/^[^@\s/]+:\d+$/.test(broker))) {
    throw new UsageError(
      '--to kafka:// takes addresses alone: kafka://host:9092,host:9092. For TLS or a password use outbox.relay() in a program.',
    )
  }
  const { name, modules } = await loadDriver('Kafka', [['@platformatic/kafka'], ['kafkajs']].filter(canRun))
  const options: BusOptions & { topic: string } = { topic: destination, logger, redact: hideUrlParts }
  if (name === 'kafkajs') {
    const Kafka = member<Make<KafkajsClient>>(modules[0], 'Kafka')
    // Its own log would mix with ours; its level 0 is none.
    return {
      title: 'Kafka',
      ...closing(kafkaBus(new Kafka({ clientId: 'aftercommit', brokers, logLevel: 0 }), options)),
    }
  }
  const connection = { clientId: 'aftercommit', bootstrapBrokers: brokers }
  const classes = modules[0] as unknown as Omit<
    Parameters<typeof kafkaBus>[0] & { Producer: never },
    'connection'
  >
  return { title: 'Kafka', ...closing(kafkaBus({ ...classes, connection } as never, options)) }
}

/** @platformatic/kafka needs a newer Node than we do. */
function canRun([name]: readonly string[]): boolean {
  return name !== '@platformatic/kafka' || Number(process.versions.node.split('.')[0]) >= 22
}

function closing(bus: BrokerBus, closeClient: () => Promise<unknown> = async () => {}) {
  const close = async () => {
    await bus.stop()
    await closeClient().catch(() => {})
  }
  return { bus, close }
}
