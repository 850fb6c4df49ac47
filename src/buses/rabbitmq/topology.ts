import type { AmqpChannel, AmqpConnection } from './link.js'

/** What a queue is declared with; the rest is the same for all. */
export interface QueueTraits {
  readonly singleActive?: boolean
  /** It is there with other settings, or may not be declared by this user: it is used as it is. */
  readonly onOther?: (reason: unknown) => void
}

const ACCESS_REFUSED = 403
const PRECONDITION_FAILED = 406

/** A durable topic exchange, unless there is one of that name. */
export async function ensureExchange(connection: AmqpConnection, name: string): Promise<void> {
  await declare(
    connection,
    (channel) => channel.assertExchange(name, 'topic', { durable: true }),
    (channel) => channel.checkExchange(name),
  )
}

/** A durable quorum queue, unless there is a queue of that name. */
export async function ensureQueue(
  connection: AmqpConnection,
  name: string,
  { singleActive = false, onOther }: QueueTraits = {},
): Promise<void> {
  const args: Record<string, unknown> = { 'x-queue-type': 'quorum' }
  if (singleActive) args['x-single-active-consumer'] = true
  // From version 4 on a queue would throw away what was delivered 20 times, if it were not told otherwise.
  if (versionOf(connection) >= 4) args['x-delivery-limit'] = -1
  await declare(
    connection,
    (channel) => channel.assertQueue(name, { durable: true, arguments: args }),
    (channel) => channel.checkQueue(name),
    onOther,
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
  onOther?: (reason: unknown) => void,
): Promise<void> {
  try {
    await onChannel(connection, create)
  } catch (error) {
    const { code } = error as { readonly code?: unknown }
    if (code !== ACCESS_REFUSED && code !== PRECONDITION_FAILED) throw error
    const isThere = await onChannel(connection, find).then(
      () => true,
      () => false,
    )
    if (!isThere) throw error
    onOther?.(error)
  }
}

/** On one of its own, since the broker closes the channel of whatever it refuses. */
export async function onChannel<T>(
  connection: AmqpConnection,
  work: (channel: AmqpChannel) => Promise<T>,
): Promise<T> {
  const channel = await connection.createChannel()
  // The promise of the work says the same.
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
