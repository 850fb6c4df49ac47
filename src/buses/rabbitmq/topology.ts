import type { AmqpChannel, AmqpConnection } from './client.js'
import { ACCESS_REFUSED, codeOf, PRECONDITION_FAILED } from './errors.js'

/** Properties of a queue that differ between the queues of the bus. */
export interface QueueTraits {
  readonly singleActive?: boolean
  /** Reports that an existing queue has other settings, or that the user may not declare it. The queue is used as it is. */
  readonly onDifferent?: (reason: unknown) => void
}

/** Creates a durable topic exchange if the exchange does not exist. */
export async function ensureExchange(connection: AmqpConnection, name: string): Promise<void> {
  await declare(
    connection,
    (channel) => channel.assertExchange(name, 'topic', { durable: true }),
    (channel) => channel.checkExchange(name),
  )
}

/** Creates a durable quorum queue if the queue does not exist. */
export async function ensureQueue(
  connection: AmqpConnection,
  name: string,
  { singleActive = false, onDifferent }: QueueTraits = {},
): Promise<void> {
  const args: Record<string, unknown> = { 'x-queue-type': 'quorum' }
  if (singleActive) args['x-single-active-consumer'] = true
  // RabbitMQ 4 drops messages after 20 deliveries by default.
  if (versionOf(connection) >= 4) args['x-delivery-limit'] = -1
  await declare(
    connection,
    (channel) => channel.assertQueue(name, { durable: true, arguments: args }),
    (channel) => channel.checkQueue(name),
    onDifferent,
  )
}

export async function bindQueue(
  connection: AmqpConnection,
  queue: string,
  exchange: string,
  patterns: readonly string[],
): Promise<void> {
  await onChannel(connection, (channel) =>
    Promise.all(patterns.map((pattern) => channel.bindQueue(queue, exchange, pattern))),
  )
}

async function declare(
  connection: AmqpConnection,
  create: (channel: AmqpChannel) => Promise<unknown>,
  find: (channel: AmqpChannel) => Promise<unknown>,
  onDifferent?: (reason: unknown) => void,
): Promise<void> {
  try {
    await onChannel(connection, create)
  } catch (error) {
    const code = codeOf(error)
    if (code !== ACCESS_REFUSED && code !== PRECONDITION_FAILED) throw error
    const isThere = await onChannel(connection, find).then(
      () => true,
      () => false,
    )
    if (!isThere) throw error
    onDifferent?.(error)
  }
}

/** Runs the work on a channel of its own, because the broker closes a channel on which it refuses a request. */
export async function onChannel<T>(
  connection: AmqpConnection,
  work: (channel: AmqpChannel) => Promise<T>,
): Promise<T> {
  const channel = await connection.createChannel()
  // The promise of the work rejects with the same error.
  channel.on('error', () => {})
  const result = await work(channel)
  await channel.close()
  return result
}

export function versionOf(connection: AmqpConnection): number {
  const { serverProperties } = (connection as { connection?: { serverProperties?: { version?: unknown } } })
    .connection ?? { serverProperties: undefined }
  return Number.parseInt(String(serverProperties?.version), 10)
}
