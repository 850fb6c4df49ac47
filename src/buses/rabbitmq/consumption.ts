import type { Burial, ConsumeOptions, Consumption, IncomingMessage } from '../../bus/transport.js'
import type { Clock, Timer } from '../../core/clock.js'
import { BrokerUnavailableError } from '../../core/errors.js'
import { type AmqpChannel, type AmqpConnection, type AmqpDelivery, inTime, type Link } from './link.js'
import { bindingOf, incomingOf } from './message.js'
import { bindQueue, ensureExchange, ensureQueue } from './topology.js'
import type { Unrouted } from './unrouted.js'

export interface RabbitmqConsumptionOptions extends ConsumeOptions {
  readonly link: Link
  readonly exchange: string
  readonly queue: string
  readonly deadQueue: string
  readonly singleActive: boolean
  readonly clock: Clock
  /** Undefined where what had no queue is not kept. */
  readonly unrouted: Unrouted | undefined
  /** Resolves when the broker has confirmed it. */
  bury(delivery: AmqpDelivery, burial: Burial): Promise<void>
}

const FIRST_WAIT_MS = 100
const LONGEST_WAIT_MS = 5_000
const MAX_PREFETCH = 65_535

/** A channel that consumes. With it goes all that was delivered on it and has no answer yet: the broker has it again. */
interface Session {
  readonly connection: AmqpConnection
  readonly channel: AmqpChannel
  /** In the order of delivery. */
  readonly held: Map<IncomingMessage, AmqpDelivery>
  consumerTag: string | undefined
  isOver: boolean
}

export class RabbitmqConsumption implements Consumption {
  readonly #options: RabbitmqConsumptionOptions
  #session: Session | null = null
  #returning: Promise<void> | null = null
  #wait: { readonly timer: Timer; end(): void } | null = null
  #isStarted = false
  #isPaused = false
  /** Delivered on the way to the pause. */
  #unwanted: AmqpDelivery[] = []
  #saidOther = false

  constructor(options: RabbitmqConsumptionOptions) {
    this.#options = options
  }

  /** Rejects when the broker cannot be used. After that it connects again by itself. */
  async start(): Promise<void> {
    await this.#open()
    this.#isStarted = true
    if (!this.#session) this.#comeBackLater(undefined)
  }

  async ack(messages: readonly IncomingMessage[]): Promise<void> {
    const session = this.#session
    if (!session) return
    const done = new Set(messages)
    let last: AmqpDelivery | undefined
    // What lies before all that is unanswered goes with one answer.
    for (const [message, delivery] of session.held) {
      if (!done.delete(message)) break
      session.held.delete(message)
      last = delivery
    }
    if (last) session.channel.ack(last, true)
    for (const delivery of takeOut(session, done)) session.channel.ack(delivery)
  }

  /** In the order of delivery. Where order counts they go back when the channel is closed, and not before. */
  async release(messages: readonly IncomingMessage[]): Promise<void> {
    const session = this.#session
    if (!session || this.#options.singleActive) return
    const deliveries = takeOut(session, messages)
    deliveries.sort((one, other) => one.fields.deliveryTag - other.fields.deliveryTag)
    for (const delivery of deliveries) session.channel.nack(delivery, false, true)
  }

  async bury(message: IncomingMessage, burial: Burial): Promise<void> {
    const delivery = this.#session?.held.get(message)
    // The broker hands it out again.
    if (!delivery) return
    await this.#options.bury(delivery, burial)
    await this.ack([message])
  }

  /** The only active consumer stays it until it has answered everything, so that nobody overtakes. */
  async pause(): Promise<void> {
    this.#isPaused = true
    this.#wait?.end()
    void this.#options.unrouted?.stop()
    const session = this.#session
    if (!session?.consumerTag || this.#options.singleActive) return
    const cancelled = session.channel.cancel(session.consumerTag).catch(() => {})
    if (!(await inTime(this.#options.clock, cancelled))) return this.#drop(session)
    if (session.isOver) return
    for (const delivery of this.#unwanted.splice(0)) session.channel.nack(delivery, false, true)
  }

  async close(): Promise<void> {
    this.#isPaused = true
    this.#wait?.end()
    const { clock, link, unrouted } = this.#options
    const stopped = unrouted && inTime(clock, unrouted.stop())
    const session = this.#session
    this.#session = null
    if (session && !session.isOver) {
      session.isOver = true
      const closed = session.channel.close().catch(() => {})
      // The answers lie before this in the same channel: when it is closed they have all been taken.
      if (!(await inTime(clock, closed))) this.#drop(session)
    }
    await stopped
    await link.close()
    await this.#returning
  }

  #drop({ connection }: Session): void {
    this.#options.link.drop(connection, new Error('RabbitMQ does not answer'))
  }

  async #open(): Promise<void> {
    const { link, exchange, queue, deadQueue, types, singleActive, maxUnanswered } = this.#options
    const connection = await link.open()
    // amqplib waits for ever where a connection has gone silent.
    const answer = <T>(work: Promise<T>) => link.answer(connection, work)
    const onOther = (reason: unknown) => this.#sayOther(reason)
    await answer(ensureExchange(connection, exchange))
    await answer(ensureQueue(connection, queue, { singleActive, onOther }))
    await answer(ensureQueue(connection, deadQueue))
    await answer(bindQueue(connection, queue, exchange, [...new Set(types.map(bindingOf))]))
    const channel = await answer(connection.createChannel())
    const session: Session = { connection, channel, held: new Map(), consumerTag: undefined, isOver: false }
    let reason: unknown
    channel.on('error', (error) => {
      reason = error
    })
    channel.on('close', () => this.#lose(session, reason))
    await answer(channel.prefetch(Math.min(maxUnanswered, MAX_PREFETCH)))
    if (this.#isPaused) return void (await answer(channel.close()))
    this.#session = session
    const consuming = channel.consume(queue, (delivery) => this.#take(session, delivery))
    try {
      session.consumerTag = (await answer(consuming)).consumerTag
    } catch (error) {
      this.#lose(session, error)
      throw error
    }
    if (!session.isOver && !this.#isPaused) this.#options.unrouted?.start(connection)
  }

  #take(session: Session, delivery: AmqpDelivery | null): void {
    if (session.isOver) return
    if (!delivery) this.#cancelled(session)
    else if (this.#isPaused) this.#unwanted.push(delivery)
    else {
      const message = incomingOf(delivery)
      session.held.set(message, delivery)
      this.#options.onMessage(message)
    }
  }

  /** Somebody has deleted the queue. */
  #cancelled(session: Session): void {
    const error = new BrokerUnavailableError('RabbitMQ', `has no queue ${this.#options.queue} any more`)
    this.#options.onProblem(error)
    session.channel.close().catch(() => {})
  }

  #lose(session: Session, reason: unknown): void {
    if (session.isOver) return
    session.isOver = true
    if (this.#session !== session) return
    void this.#options.unrouted?.stop()
    this.#session = null
    this.#unwanted = []
    this.#options.onLost([...session.held.keys()])
    session.held.clear()
    if (this.#isStarted) this.#comeBackLater(reason)
  }

  #comeBackLater(reason: unknown): void {
    this.#returning ??= this.#comeBack(reason).finally(() => {
      this.#returning = null
    })
  }

  /** Never rejects. */
  async #comeBack(reason: unknown): Promise<void> {
    const { link, onProblem } = this.#options
    // Then the connection knows why it was closed.
    await undefined
    if (this.#isPaused) return
    const cause = reason ?? link.lastReason
    onProblem(new BrokerUnavailableError('RabbitMQ', 'has closed the connection or the channel', cause))
    for (let waitMs = 0; !this.#session; waitMs = Math.min(LONGEST_WAIT_MS, waitMs * 2 || FIRST_WAIT_MS)) {
      await this.#sleep(waitMs)
      if (this.#isPaused) return
      try {
        await this.#open()
      } catch (error) {
        onProblem(error)
      }
    }
  }

  /** Ends at once when the consumption does. */
  #sleep(ms: number): Promise<void> {
    if (this.#isPaused) return Promise.resolve()
    // Those that the broker has sent away together must not come back together.
    const jittered = ms * (0.5 + Math.random() / 2)
    return new Promise((resolve) => {
      const end = () => {
        this.#wait?.timer.cancel()
        this.#wait = null
        resolve()
      }
      this.#wait = { timer: this.#options.clock.setTimer(end, jittered), end }
    })
  }

  #sayOther(reason: unknown): void {
    if (!this.#saidOther) this.#options.onProblem(reason)
    this.#saidOther = true
  }
}

/** Each of them can be answered once. */
function takeOut(session: Session, messages: Iterable<IncomingMessage>): AmqpDelivery[] {
  const taken: AmqpDelivery[] = []
  for (const message of messages) {
    const delivery = session.held.get(message)
    if (delivery && session.held.delete(message)) taken.push(delivery)
  }
  return taken
}
