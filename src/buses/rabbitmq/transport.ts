import type { BusSettings } from '../../bus/settings.js'
import type { ConsumeOptions, Consumption, OutgoingMessage, Transport } from '../../bus/transport.js'
import { causesOf } from '../../core/causes.js'
import { AftercommitError, BrokerUnavailableError } from '../../core/errors.js'
import { RabbitmqConsumption } from './consumption.js'
import { type AmqpConnection, type Connect, inTime, Link } from './link.js'
import { burialOf, propertiesOf, routingKeyOf, shortened } from './message.js'
import { type Parcel, Publisher, RETURNED } from './publisher.js'
import { ensureExchange, ensureQueue } from './topology.js'

export interface RabbitmqTransportOptions {
  readonly settings: BusSettings
  readonly exchange: string
  readonly singleActive: boolean
  readonly unrouted: 'keep' | 'refuse' | 'drop'
}

const BROKER = 'RabbitMQ'
const ACCESS_REFUSED = 403
/** Types that were said to have no queue: their number has no bound. */
const MAX_SAID = 1_000

export class RabbitmqTransport implements Transport {
  readonly broker = BROKER
  readonly #connect: Connect
  readonly #options: RabbitmqTransportOptions
  /** Its own, since a broker that is short of memory stops reading from who publishes. */
  readonly #link: Link
  readonly #saidUnrouted = new Set<string>()
  #publisher: Publisher | null = null
  #opening: Promise<Publisher> | null = null

  constructor(connect: Connect, options: RabbitmqTransportOptions) {
    this.#connect = connect
    this.#options = options
    this.#link = new Link(connect, options.settings.clock)
  }

  async send(messages: readonly OutgoingMessage[]): Promise<readonly (unknown | null)[]> {
    const { exchange, unrouted } = this.#options
    const parcels = messages.map(
      (message): Parcel => ({
        exchange,
        routingKey: routingKeyOf(message.type),
        body: message.body,
        properties: propertiesOf(message, unrouted !== 'drop'),
      }),
    )
    const answers = await this.#publish(parcels)
    const returned = parcels.filter((_, at) => answers[at] === RETURNED)
    return returned.length === 0 ? answers : this.#unrouted(parcels, answers, returned)
  }

  async check(): Promise<void> {
    const { settings, exchange } = this.#options
    const connection = await this.#link.open()
    this.#refuseBlocked()
    const answer = ensureExchange(connection, exchange)
    // Before the caller gives up: then there is another connection when it asks again.
    const limitMs = settings.confirmTimeoutMs * 0.8
    if (!(await inTime(settings.clock, answer, limitMs))) this.#drop(connection)
    await answer
  }

  isUnavailable(error: unknown): boolean {
    return causesOf(error).some((cause) => cause instanceof BrokerUnavailableError || isLost(cause))
  }

  async consume(options: ConsumeOptions): Promise<Consumption> {
    const { settings, exchange, singleActive } = this.#options
    const queue = `${exchange}.${options.group}`
    const deadQueue = `${queue}.dead`
    const consumption = new RabbitmqConsumption({
      ...options,
      link: new Link(this.#connect, settings.clock),
      exchange,
      queue,
      deadQueue,
      singleActive,
      clock: settings.clock,
      bury: (delivery, burial) =>
        this.#put(deadQueue, [{ body: delivery.content, properties: burialOf(delivery, burial) }]),
    })
    try {
      await consumption.start()
      return consumption
    } catch (error) {
      await consumption.close()
      throw error
    }
  }

  async close(): Promise<void> {
    this.#publisher = null
    this.#opening = null
    await this.#link.close()
  }

  /** Null, RETURNED, or what went wrong: a BrokerUnavailableError where it is not the message. */
  async #publish(parcels: readonly Parcel[]): Promise<unknown[]> {
    const publisher = await this.#open()
    this.#refuseBlocked()
    const answers = await publisher.publishAll(parcels)
    if (publisher.refusal) return this.#publishSingly(parcels, answers)
    return answers.map((answer) => this.#explain(answer))
  }

  /**
   * The broker has closed the channel because of one of them, or of one of somebody else; it has looked at none that came
   * later. So they go again, one after the other, on a channel that nobody else uses: then it is clear whose fault it is.
   */
  async #publishSingly(parcels: readonly Parcel[], answers: unknown[]): Promise<unknown[]> {
    let publisher: Publisher | undefined
    let down: unknown
    for (const [at, parcel] of parcels.entries()) {
      if (!isLost(answers[at])) continue
      if (!down) {
        try {
          if (!publisher || publisher.isClosed) publisher = await this.#openPublisher()
          const [answer] = await publisher.publishAll([parcel])
          answers[at] = this.#explain(publisher.refusal ? explainRefusal(publisher.refusal) : answer)
        } catch (error) {
          answers[at] = error
        }
        if (answers[at] instanceof BrokerUnavailableError) down = answers[at]
      } else answers[at] = down
    }
    await publisher?.close().catch(() => {})
    return answers
  }

  async #unrouted(
    parcels: readonly Parcel[],
    answers: unknown[],
    returned: readonly Parcel[],
  ): Promise<unknown[]> {
    const { exchange, unrouted } = this.#options
    for (const { routingKey } of returned) this.#sayUnrouted(routingKey)
    const kept = unrouted === 'keep' ? await this.#putAll(`${exchange}.unrouted`, returned) : []
    const outcomes = new Map(
      returned.map((parcel, at) => [
        parcel,
        unrouted === 'keep' ? kept[at] : unroutedError(exchange, parcel.routingKey),
      ]),
    )
    return parcels.map((parcel, at) => (outcomes.has(parcel) ? outcomes.get(parcel) : answers[at]))
  }

  /** Straight into a queue, which is made where it is missing. */
  async #putAll(queue: string, parcels: readonly Pick<Parcel, 'body' | 'properties'>[]): Promise<unknown[]> {
    try {
      await ensureQueue(await this.#link.open(), queue)
      const addressed = parcels.map(({ body, properties }) => ({
        exchange: '',
        routingKey: queue,
        body,
        properties,
      }))
      const answers = await this.#publish(addressed)
      // Deleted between the two.
      return answers.map((answer) => (answer === RETURNED ? unroutedError('', queue) : answer))
    } catch (error) {
      return parcels.map(() => error)
    }
  }

  async #put(queue: string, parcels: readonly Pick<Parcel, 'body' | 'properties'>[]): Promise<void> {
    const [error] = await this.#putAll(queue, parcels)
    if (!error) return
    if (!(error instanceof AftercommitError) || error.code !== 'EVENT_TOO_LARGE') throw error
    const short = parcels.map((parcel) => ({ ...parcel, properties: shortened(parcel.properties) }))
    const [again] = await this.#putAll(queue, short)
    if (again) throw again
  }

  async #open(): Promise<Publisher> {
    if (this.#publisher && !this.#publisher.isClosed) return this.#publisher
    if (!this.#opening) {
      const opening = this.#openPublisher()
      this.#opening = opening
      opening.then(
        (publisher) => {
          if (this.#opening !== opening) return
          this.#publisher = publisher
          this.#opening = null
        },
        () => {
          if (this.#opening === opening) this.#opening = null
        },
      )
    }
    return this.#opening
  }

  async #openPublisher(): Promise<Publisher> {
    const { settings, exchange } = this.#options
    const connection = await this.#link.open()
    try {
      await ensureExchange(connection, exchange)
      return await Publisher.open(connection, {
        clock: settings.clock,
        silenceMs: settings.confirmTimeoutMs,
        // Its socket is not read while it is blocked: then silence says nothing.
        onSilence: () => this.#link.blocked === undefined && this.#drop(connection),
      })
    } catch (error) {
      throw new BrokerUnavailableError(BROKER, 'cannot be used', this.#link.lastReason ?? error)
    }
  }

  #drop(connection: AmqpConnection): void {
    this.#link.drop(connection, new Error(`no answer for too long`))
  }

  #refuseBlocked(): void {
    const { blocked } = this.#link
    if (blocked !== undefined) throw new BrokerUnavailableError(BROKER, `takes nothing now (${blocked})`)
  }

  #explain(answer: unknown): unknown {
    if (answer === null || answer === RETURNED || answer instanceof AftercommitError) return answer
    if (isNack(answer)) return new BrokerUnavailableError(BROKER, 'could not store it', answer)
    if (!isLost(answer)) return answer
    return new BrokerUnavailableError(BROKER, 'has closed the connection', this.#link.lastReason ?? answer)
  }

  #sayUnrouted(type: string): void {
    if (this.#saidUnrouted.has(type) || this.#saidUnrouted.size >= MAX_SAID) return
    this.#saidUnrouted.add(type)
    const { settings, exchange, unrouted } = this.#options
    const what = unrouted === 'keep' ? `kept in ${exchange}.unrouted` : 'refused'
    settings.logger.warn({ event_type: type, exchange }, `RabbitMQ has no queue for these events: ${what}`)
  }
}

/** Nobody may publish into this exchange: that is no fault of this message. A topic alone can be forbidden as well. */
function explainRefusal(refusal: unknown): unknown {
  const { code, message } = refusal as { readonly code?: unknown; readonly message?: unknown }
  if (code !== ACCESS_REFUSED || String(message).includes('access to topic')) return refusal
  return new BrokerUnavailableError(BROKER, 'does not let this user publish', refusal)
}

function unroutedError(exchange: string, routingKey: string): AftercommitError {
  return new AftercommitError(
    'UNROUTED',
    `No queue takes ${JSON.stringify(routingKey)} from the exchange ${JSON.stringify(exchange)}. Start a group that subscribes to it, and publish it again.`,
  )
}

function isNack(error: unknown): boolean {
  return error instanceof Error && error.message === 'message nacked'
}

const LOST = /^(ECONN\w+|EPIPE|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|ERR_STREAM_DESTROYED)$/

/** amqplib's errors of a connection or channel that is gone have names and texts, and no codes. */
function isLost(error: unknown): boolean {
  const { name, message, code } = (error ?? {}) as Record<string, unknown>
  if (name === 'IllegalOperationError' || message === 'channel closed') return true
  if (message === 'Channel ended, no reply will be forthcoming' || message === 'Heartbeat timeout')
    return true
  // 320: the broker is told to close connections, for example when it stops. 541: it has failed itself.
  return (typeof code === 'string' && LOST.test(code)) || code === 320 || code === 541
}
