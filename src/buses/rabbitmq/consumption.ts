import type { ConsumeOptions, Consumption, DeadLetterReason, IncomingMessage } from '../../bus.js'
import type { Clock, Timer } from '../../core/clock.js'
import { BrokerUnavailableError } from '../../core/errors.js'
import {
  type AmqpChannel,
  type AmqpConnection,
  type AmqpDelivery,
  endsWithin,
  type ManagedConnection,
} from './client.js'
import { BROKER } from './errors.js'
import { bindingOf, incomingOf } from './message.js'
import { bindQueue, ensureExchange, ensureQueue } from './topology.js'
import type { UnroutedRepublisher } from './unrouted.js'

export interface RabbitmqConsumptionOptions extends ConsumeOptions {
  readonly managed: ManagedConnection
  readonly exchange: string
  readonly queue: string
  readonly deadQueue: string
  readonly singleActive: boolean
  readonly clock: Clock
  /** Undefined if unrouted events are not kept. */
  readonly republisher: UnroutedRepublisher | undefined
  /** Resolves when the broker has confirmed the copy. */
  sendDeadLetter(delivery: AmqpDelivery, reason: DeadLetterReason): Promise<void>
}

const FIRST_DELAY_MS = 100
const MAX_DELAY_MS = 5_000
const MAX_PREFETCH = 65_535

/** A channel with a consumer. When it closes, the broker returns its unacknowledged messages to the queue. */
interface ConsumeChannel {
  readonly connection: AmqpConnection
  readonly channel: AmqpChannel
  /** Unacknowledged deliveries in the order of delivery. */
  readonly unacked: Map<IncomingMessage, AmqpDelivery>
  consumerTag: string | undefined
  isOver: boolean
}

/** Consumes from the queue of a group, and opens the channel again after it was closed. */
export class RabbitmqConsumption implements Consumption {
  readonly #options: RabbitmqConsumptionOptions
  #current: ConsumeChannel | null = null
  #reopening: Promise<void> | null = null
  #pendingDelay: { readonly timer: Timer; end(): void } | null = null
  #isStarted = false
  #isDeliveryStopped = false
  /** Messages that arrived after the stop of the delivery. */
  #undelivered: AmqpDelivery[] = []
  #hasReportedQueue = false

  constructor(options: RabbitmqConsumptionOptions) {
    this.#options = options
  }

  /** Rejects if the broker cannot be used. After it has resolved, lost channels are opened again. */
  async start(): Promise<void> {
    await this.#open()
    this.#isStarted = true
    if (!this.#current) this.#reopenLater(undefined)
  }

  async ack(messages: readonly IncomingMessage[]): Promise<void> {
    const current = this.#current
    if (!current) return
    const done = new Set(messages)
    let last: AmqpDelivery | undefined
    // A cumulative acknowledgement covers all messages before the first unacknowledged message.
    for (const [message, delivery] of current.unacked) {
      if (!done.delete(message)) break
      current.unacked.delete(message)
      last = delivery
    }
    if (last) current.channel.ack(last, true)
    for (const delivery of untrack(current, done)) current.channel.ack(delivery)
  }

  /**
   * Releases messages in the order of delivery. With a single active consumer, the close of the channel releases them, because
   * a released message would be delivered to this consumer again.
   */
  async release(messages: readonly IncomingMessage[]): Promise<void> {
    const current = this.#current
    if (!current || this.#options.singleActive) return
    const deliveries = untrack(current, messages)
    deliveries.sort((a, b) => a.fields.deliveryTag - b.fields.deliveryTag)
    for (const delivery of deliveries) current.channel.nack(delivery, false, true)
  }

  async deadLetter(message: IncomingMessage, reason: DeadLetterReason): Promise<void> {
    const delivery = this.#current?.unacked.get(message)
    // The lease was lost, and the broker delivers the message again.
    if (!delivery) return
    await this.#options.sendDeadLetter(delivery, reason)
    await this.ack([message])
  }

  /** A single active consumer stays active until it has settled its messages, so that no consumer overtakes it. */
  async stopDelivery(): Promise<void> {
    this.#isDeliveryStopped = true
    this.#pendingDelay?.end()
    void this.#options.republisher?.stop()
    const current = this.#current
    if (!current?.consumerTag || this.#options.singleActive) return
    const cancelled = current.channel.cancel(current.consumerTag).catch(() => {})
    if (!(await endsWithin(this.#options.clock, cancelled))) return this.#drop(current)
    if (current.isOver) return
    for (const delivery of this.#undelivered.splice(0)) current.channel.nack(delivery, false, true)
  }

  async close(): Promise<void> {
    this.#isDeliveryStopped = true
    this.#pendingDelay?.end()
    const { clock, managed, republisher } = this.#options
    const stopped = republisher && endsWithin(clock, republisher.stop())
    const current = this.#current
    this.#current = null
    if (current && !current.isOver) {
      current.isOver = true
      const closed = current.channel.close().catch(() => {})
      // The channel processes its acknowledgements before the close, so all of them have arrived when it is closed.
      if (!(await endsWithin(clock, closed))) this.#drop(current)
    }
    await stopped
    await managed.close()
    await this.#reopening
  }

  #drop({ connection }: ConsumeChannel): void {
    this.#options.managed.drop(connection, new Error('RabbitMQ does not answer'))
  }

  async #open(): Promise<void> {
    const { managed, exchange, queue, deadQueue, types, singleActive, maxUnacked } = this.#options
    const connection = await managed.open()
    // amqplib waits without a time limit on a silent connection.
    const waitFor = <T>(work: Promise<T>) => managed.waitFor(connection, work)
    const onDifferent = (reason: unknown) => this.#reportQueue(reason)
    await waitFor(ensureExchange(connection, exchange))
    await waitFor(ensureQueue(connection, queue, { singleActive, onDifferent }))
    await waitFor(ensureQueue(connection, deadQueue))
    await waitFor(bindQueue(connection, queue, exchange, [...new Set(types.map(bindingOf))]))
    const channel = await waitFor(connection.createChannel())
    const current: ConsumeChannel = {
      connection,
      channel,
      unacked: new Map(),
      consumerTag: undefined,
      isOver: false,
    }
    let reason: unknown
    channel.on('error', (error) => {
      reason = error
    })
    channel.on('close', () => this.#loseChannel(current, reason))
    await waitFor(channel.prefetch(Math.min(maxUnacked, MAX_PREFETCH)))
    if (this.#isDeliveryStopped) return void (await waitFor(channel.close()))
    this.#current = current
    const consuming = channel.consume(queue, (delivery) => this.#take(current, delivery))
    try {
      current.consumerTag = (await waitFor(consuming)).consumerTag
    } catch (error) {
      this.#loseChannel(current, error)
      throw error
    }
    if (!current.isOver && !this.#isDeliveryStopped) this.#options.republisher?.start(connection)
  }

  #take(current: ConsumeChannel, delivery: AmqpDelivery | null): void {
    if (current.isOver) return
    if (!delivery) this.#onQueueDeleted(current)
    else if (this.#isDeliveryStopped) this.#undelivered.push(delivery)
    else {
      const message = incomingOf(delivery)
      current.unacked.set(message, delivery)
      this.#options.onMessage(message)
    }
  }

  /** RabbitMQ cancels the consumer when the queue is deleted. */
  #onQueueDeleted(current: ConsumeChannel): void {
    const error = new BrokerUnavailableError(BROKER, `has no queue ${this.#options.queue} any more`)
    this.#options.onError(error)
    current.channel.close().catch(() => {})
  }

  #loseChannel(current: ConsumeChannel, reason: unknown): void {
    if (current.isOver) return
    current.isOver = true
    if (this.#current !== current) return
    void this.#options.republisher?.stop()
    this.#current = null
    this.#undelivered = []
    this.#options.onLeaseLost([...current.unacked.keys()])
    current.unacked.clear()
    if (this.#isStarted) this.#reopenLater(reason)
  }

  #reopenLater(reason: unknown): void {
    this.#reopening ??= this.#reopen(reason).finally(() => {
      this.#reopening = null
    })
  }

  /** Opens a new channel, with growing delays between the attempts. Never rejects. */
  async #reopen(reason: unknown): Promise<void> {
    const { managed, onError } = this.#options
    // The connection receives the reason for its close after the channel.
    await undefined
    if (this.#isDeliveryStopped) return
    const cause = reason ?? managed.lastReason
    onError(new BrokerUnavailableError(BROKER, 'has closed the connection or the channel', cause))
    for (let delayMs = 0; !this.#current; delayMs = Math.min(MAX_DELAY_MS, delayMs * 2 || FIRST_DELAY_MS)) {
      await this.#delay(delayMs)
      if (this.#isDeliveryStopped) return
      try {
        await this.#open()
      } catch (error) {
        onError(error)
      }
    }
  }

  /** Ends early when the consumption stops. */
  #delay(ms: number): Promise<void> {
    if (this.#isDeliveryStopped) return Promise.resolve()
    // Jitter keeps consumers that lost their connection together from reconnecting together.
    const jittered = ms * (0.5 + Math.random() / 2)
    return new Promise((resolve) => {
      const end = () => {
        this.#pendingDelay?.timer.cancel()
        this.#pendingDelay = null
        resolve()
      }
      this.#pendingDelay = { timer: this.#options.clock.setTimer(end, jittered), end }
    })
  }

  #reportQueue(reason: unknown): void {
    if (!this.#hasReportedQueue) this.#options.onError(reason)
    this.#hasReportedQueue = true
  }
}

/** Removes messages from the unacknowledged ones, so that each message is settled only once. */
function untrack(current: ConsumeChannel, messages: Iterable<IncomingMessage>): AmqpDelivery[] {
  const taken: AmqpDelivery[] = []
  for (const message of messages) {
    const delivery = current.unacked.get(message)
    if (delivery && current.unacked.delete(message)) taken.push(delivery)
  }
  return taken
}
