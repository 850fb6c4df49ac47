import type { Clock } from '../../core/clock.js'
import { BrokerUnavailableError } from '../../core/errors.js'
import { causesOf } from '../../core/unknown.js'
import {
  type AmqpChannel,
  type AmqpConnection,
  type AmqpDelivery,
  endsWithin,
  type ManagedConnection,
} from './client.js'
import { type AddressedMessage, RETURNED } from './confirm-channel.js'
import { ACCESS_REFUSED, codeOf, NOT_FOUND, RESOURCE_LOCKED } from './errors.js'
import { incomingOf, resentOf, routingKeyOf } from './message.js'
import { onChannel } from './topology.js'

export interface UnroutedRepublisherOptions {
  readonly managed: ManagedConnection
  readonly exchange: string
  readonly clock: Clock
  /** Maximum time in milliseconds that a publisher needs for one event. */
  readonly publishMs: number
  /** Publishes in order. Resolves per message with null, RETURNED if no queue received it, or an error. */
  publish(messages: readonly AddressedMessage[]): Promise<unknown[]>
  /** Appends messages to the queue of unrouted events. Resolves per message with null or an error. */
  keep(messages: readonly Pick<AddressedMessage, 'body' | 'properties'>[]): Promise<unknown[]>
  onError(reason: unknown): void
}

/** Number of messages that are read, published and acknowledged together. Limits memory, because payloads may be large. */
const CHUNK = 100
/** Maximum wait in milliseconds for a chunk. It arrives at once, unless another consumer has taken the messages. */
const CHUNK_MS = 10_000
const FIRST_DELAY_MS = 100
const MAX_DELAY_MS = 5_000

interface RepublishRun {
  isOver: boolean
  readonly over: Promise<void>
  end(): void
}

/**
 * Publishes the events in `<exchange>.unrouted` again, in the background, after a consumer has bound its queue. A second run
 * follows for events that publishers were sending when the queue was bound. An event is removed after the broker has confirmed
 * that another queue has received it, or that a copy is at the end of the queue. A crash can therefore duplicate an event.
 */
export class UnroutedRepublisher {
  readonly #options: UnroutedRepublisherOptions
  readonly #queue: string
  #run: RepublishRun | null = null
  #running: Promise<void> = Promise.resolve()
  #hasReported = false

  constructor(options: UnroutedRepublisherOptions) {
    this.#options = options
    this.#queue = `${options.exchange}.unrouted`
  }

  /** Starts a run on the connection on which the queues were bound. Ends a run on another connection. */
  start(connection: AmqpConnection): void {
    this.#run?.end()
    const run = newRepublishRun()
    this.#run = run
    this.#running = this.#running.then(() => this.#work(connection, run))
  }

  /** Resolves when the run has ended, which is after its current chunk. */
  async stop(): Promise<void> {
    this.#run?.end()
    await this.#running
  }

  /** Never rejects. */
  async #work(connection: AmqpConnection, run: RepublishRun): Promise<void> {
    if (!(await this.#republishOnce(connection, run))) return
    await endsWithin(this.#options.clock, run.over, this.#options.publishMs)
    await this.#republishOnce(connection, run)
  }

  /** Resolves with whether a second run may find events. Never rejects. */
  async #republishOnce(connection: AmqpConnection, run: RepublishRun): Promise<boolean> {
    for (let delayMs = FIRST_DELAY_MS; !run.isOver; delayMs = Math.min(MAX_DELAY_MS, delayMs * 2)) {
      try {
        await this.#republishLocked(connection, run)
        return true
      } catch (error) {
        const code = codeOf(error)
        // The queue does not exist, or this user may not read it.
        if (run.isOver || code === NOT_FOUND || code === ACCESS_REFUSED) return code === NOT_FOUND
        if (code !== RESOURCE_LOCKED) this.#report(error)
        if (code !== RESOURCE_LOCKED && !mayRetry(error)) return false
      }
      await endsWithin(this.#options.clock, run.over, delayMs)
    }
    return false
  }

  /**
   * Allows one consumer at a time to republish. Otherwise a consumer that has just bound a queue could miss events that another
   * consumer has taken out and is about to put back.
   */
  async #republishLocked(connection: AmqpConnection, run: RepublishRun): Promise<void> {
    const { publish } = this.#options
    await this.#onChannel(connection, (channel) => channel.checkQueue(this.#queue))
    // Verifies that publishing works before any event is taken out.
    await publish([])
    const lock = `${this.#queue}.lock`
    const isLocked = await this.#locked(connection, lock)
    try {
      if (!run.isOver) await this.#republishAll(connection, run)
    } finally {
      if (isLocked) await this.#onChannel(connection, (channel) => channel.deleteQueue(lock)).catch(() => {})
    }
  }

  /** Locks with an exclusive queue, which ends with the connection. Resolves with false if the user may not create queues. */
  async #locked(connection: AmqpConnection, lock: string): Promise<boolean> {
    const options = { durable: false, exclusive: true, arguments: {} }
    try {
      await this.#onChannel(connection, (channel) => channel.assertQueue(lock, options))
      return true
    } catch (error) {
      if (codeOf(error) === ACCESS_REFUSED) return false
      throw error
    }
  }

  async #republishAll(connection: AmqpConnection, run: RepublishRun): Promise<void> {
    const { managed, clock } = this.#options
    const { messageCount } = await this.#onChannel(connection, (channel) => channel.checkQueue(this.#queue))
    const channel = await managed.waitFor(connection, connection.createChannel())
    channel.on('error', () => {})
    const typesWithoutQueue = new Set<string>()
    try {
      for (let left = messageCount; left > 0 && !run.isOver; ) {
        const deliveries = await this.#take(connection, channel, Math.min(left, CHUNK), run)
        const last = deliveries.at(-1)
        if (!last || run.isOver) return
        left -= deliveries.length
        await this.#move(deliveries, typesWithoutQueue)
        // A cumulative acknowledgement covers the chunk, because the close of the channel could overtake single acknowledgements.
        channel.ack(last, true)
      }
    } finally {
      await endsWithin(clock, closed(channel))
    }
  }

  async #take(
    connection: AmqpConnection,
    channel: AmqpChannel,
    count: number,
    run: RepublishRun,
  ): Promise<readonly AmqpDelivery[]> {
    const { managed, clock } = this.#options
    const deliveries: AmqpDelivery[] = []
    let end = () => {}
    const all = new Promise<void>((resolve) => {
      end = resolve
    })
    await managed.waitFor(connection, channel.prefetch(count))
    const consuming = channel.consume(this.#queue, (delivery) => {
      if (delivery) deliveries.push(delivery)
      if (!delivery || deliveries.length === count) end()
    })
    const { consumerTag } = await managed.waitFor(connection, consuming)
    await endsWithin(clock, Promise.race([all, run.over]), CHUNK_MS)
    // Without the cancel, each acknowledgement would cause another delivery.
    await managed.waitFor(connection, channel.cancel(consumerTag))
    return deliveries
  }

  /** Resolves when each event is in a queue. If an event has no queue, later events of its type are not tried. */
  async #move(deliveries: readonly AmqpDelivery[], typesWithoutQueue: Set<string>): Promise<void> {
    const { exchange, publish, keep } = this.#options
    const moving = new Map<AddressedMessage, AmqpDelivery>()
    for (const delivery of deliveries) {
      const message = addressedOf(exchange, delivery)
      if (message && !typesWithoutQueue.has(message.routingKey)) moving.set(message, delivery)
    }
    const messages = [...moving.keys()]
    const answers = await publish(messages)
    const done = new Set<AmqpDelivery>()
    for (const [at, message] of messages.entries()) {
      if (answers[at] === RETURNED) typesWithoutQueue.add(message.routingKey)
      if (answers[at] === null) done.add(moving.get(message) as AmqpDelivery)
    }
    this.#reportFailures(answers)
    const staying = deliveries.filter((delivery) => !done.has(delivery))
    const kept = await keep(
      staying.map((delivery) => ({ body: delivery.content, properties: resentOf(delivery) })),
    )
    const failed = kept.find((answer) => answer !== null)
    if (failed !== undefined) throw failed
  }

  #reportFailures(answers: readonly unknown[]): void {
    const failures = answers.filter((answer) => answer !== null && answer !== RETURNED)
    const down = failures.find((failure) => failure instanceof BrokerUnavailableError)
    if (down) throw down
    if (failures.length > 0) this.#report(failures[0])
  }

  #onChannel<T>(connection: AmqpConnection, work: (channel: AmqpChannel) => Promise<T>): Promise<T> {
    return this.#options.managed.waitFor(connection, onChannel(connection, work))
  }

  #report(reason: unknown): void {
    if (!this.#hasReported) this.#options.onError(reason)
    this.#hasReported = true
  }
}

function newRepublishRun(): RepublishRun {
  let resolve = () => {}
  const over = new Promise<void>((done) => {
    resolve = done
  })
  const run: RepublishRun = {
    isOver: false,
    over,
    end: () => {
      run.isOver = true
      resolve()
    },
  }
  return run
}

/** Derives the routing key from the event type, because the kept message is addressed to the queue. Needs a type. */
function addressedOf(exchange: string, delivery: AmqpDelivery): AddressedMessage | undefined {
  const { type } = incomingOf(delivery).attributes
  if (type === undefined) return undefined
  return { exchange, routingKey: routingKeyOf(type), body: delivery.content, properties: resentOf(delivery) }
}

/** Returns whether a failed run is retried: an outage ends, but a missing permission needs a new connection. */
function mayRetry(error: unknown): boolean {
  const isForbidden = causesOf(error).some((cause) => codeOf(cause) === ACCESS_REFUSED)
  return error instanceof BrokerUnavailableError && !isForbidden
}

/** Closes a channel. Never rejects. */
async function closed(channel: AmqpChannel): Promise<void> {
  try {
    await channel.close()
  } catch {
    // The channel was already closed.
  }
}
