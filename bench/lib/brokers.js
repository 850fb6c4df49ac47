// Each broker: a server of its own, our bus on it, and its bare client, which sends the same bytes with the same confirms.
// The servers sync as they do by default, but for Redis, which is told to: an answer of it would mean little otherwise.
const STREAM = 'bench'

/** Names of headers come again and again, and are made once. */
const names = new Map()
function nameOf(text) {
  if (!names.has(text)) names.set(text, Buffer.from(text))
  return names.get(text)
}

export const brokers = {
  redis: {
    start: async () => (await import('../../scripts/redis-server.mjs')).startRedis(),
    async open(url) {
      const { createClient } = await import('redis')
      const client = createClient({ url })
      client.on('error', () => {})
      await client.connect()
      return {
        bus: async (options) =>
          (await import('../../dist/buses/redis/index.js')).redisBus(client, { stream: STREAM, ...options }),
        prepare: ({ attributes, contentType, body }) => [
          'XADD',
          STREAM,
          '*',
          ...Object.entries(attributes).flatMap(([name, value]) => [`ce-${name}`, value]),
          'content-type',
          contentType,
          'data',
          Buffer.from(body),
        ],
        // Commands of one turn go out together.
        send: (commands) => Promise.all(commands.map((command) => client.sendCommand(command))),
        close: () => client.close(),
      }
    },
  },
  nats: {
    start: async () => (await import('../../scripts/nats-server.mjs')).startNats(),
    async open(url) {
      const { connect, headers } = await import('@nats-io/transport-node')
      const { jetstream, jetstreamManager } = await import('@nats-io/jetstream')
      const connection = await connect({ servers: url })
      const manager = await jetstreamManager(connection)
      await manager.streams.add({ name: 'bare', subjects: ['bare.>'] })
      const js = jetstream(connection)
      return {
        bus: async (options) =>
          (await import('../../dist/buses/nats/index.js')).natsBus(connection, {
            stream: STREAM,
            ...options,
          }),
        prepare({ id, type, attributes, contentType, body }) {
          const made = headers()
          for (const [name, value] of Object.entries(attributes))
            made.set(`ce-${name}`, encodeURIComponent(value))
          made.set('content-type', contentType)
          return [`bare.${type}`, body, { msgID: id, headers: made }]
        },
        send: (messages) => Promise.all(messages.map((args) => js.publish(...args))),
        close: () => connection.close(),
      }
    },
  },
  rabbitmq: {
    start: async () => (await import('../../scripts/rabbitmq-server.mjs')).startRabbitmq(),
    async open(url) {
      const { default: amqp } = await import('amqplib')
      const connection = await amqp.connect(url)
      const channel = await connection.createConfirmChannel()
      // A queue takes the events on either side: without one there would be nothing to confirm.
      for (const exchange of [STREAM, 'bare']) {
        await channel.assertExchange(exchange, 'topic', { durable: true })
        await channel.assertQueue(`${exchange}.bench`, {
          durable: true,
          arguments: { 'x-queue-type': 'quorum' },
        })
        await channel.bindQueue(`${exchange}.bench`, exchange, '#')
      }
      return {
        bus: async (options) =>
          (await import('../../dist/buses/rabbitmq/index.js')).rabbitmqBus(() => amqp.connect(url), {
            exchange: STREAM,
            ...options,
          }),
        prepare({ id, type, attributes, contentType, body }) {
          const headers = Object.fromEntries(
            Object.entries(attributes).map(([name, value]) => [`cloudEvents:${name}`, value]),
          )
          // Mandatory, as the bus has it: a confirm without that may be of a message that no queue has taken.
          const options = { persistent: true, mandatory: true, contentType, messageId: id, headers }
          return ['bare', type, Buffer.from(body), options]
        },
        send: (messages) =>
          Promise.all(
            messages.map(
              (args) =>
                new Promise((resolve, reject) =>
                  channel.publish(...args, (error) => (error ? reject(error) : resolve())),
                ),
            ),
          ),
        close: () => connection.close(),
      }
    },
  },
  kafka: {
    async start() {
      const { KAFKA, startKafka } = await import('../../scripts/kafka-server.mjs')
      const server = await startKafka()
      return { url: server.brokers.join(','), version: KAFKA, stop: () => server.stop() }
    },
    async open(url) {
      const { Admin, Consumer, Producer } = await import('@platformatic/kafka')
      const connection = { clientId: 'bench', bootstrapBrokers: url.split(',') }
      const admin = new Admin(connection)
      await admin.createTopics({ topics: ['bare'], partitions: 6, replicas: 1 }).catch(() => {})
      await admin.close()
      const producer = new Producer({ ...connection, idempotent: true, acks: -1 })
      return {
        bus: async (options) =>
          (await import('../../dist/buses/kafka/index.js')).kafkaBus(
            { Admin, Consumer, Producer, connection },
            { topic: STREAM, ...options },
          ),
        prepare({ id, attributes, contentType, body }) {
          const headers = new Map([[nameOf('content-type'), Buffer.from(contentType)]])
          for (const name in attributes) headers.set(nameOf(`ce_${name}`), Buffer.from(attributes[name]))
          return { topic: 'bare', key: Buffer.from(id), value: Buffer.from(body), headers }
        },
        // An idempotent producer numbers its messages: two batches at a time could overtake each other.
        atATime: 1,
        send: (messages) => producer.send({ messages, acks: -1 }),
        close: () => producer.close(),
      }
    },
  },
}
