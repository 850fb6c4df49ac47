import type { BusSettings } from '../../bus/settings.js'
import type { ConsumeOptions, Consumption, OutgoingMessage, Transport } from '../../bus/transport.js'
import { AftercommitError, BrokerUnavailableError } from '../../core/errors.js'
import { causesOf } from '../../core/unknown.js'
import { RabbitmqConsumption } from './consumption.js'
import { type Connect, inTime, Link } from './link.js'
import { burialOf, propertiesOf, routingKeyOf, shortened } from './message.js'
import { lateError, type Parcel, Publisher, RETURNED } from './publisher.js'
import { ensureExchange, ensureQueue } from './topology.js'
import { Unrouted } from './unrouted.js'

export interface RabbitmqTransportOptions {
  readonly settings: BusSettings
  readonly exchange: string
  readonly singleActive: boolean
  readonly unrouted: 'keep' | 'refuse' | 'drop'
}

const BROKER = 'RabbitMQ'
const ACCESS_REFUSED = 403
const NOT_FOUND = 404
/** Of the time that the caller waits: what is known by then is answered, and what is not is left for another time. */
const TIMELY = 0.8
/** Refusals that could not be told yet: their number has no bound. */
const MAX_REFUSED = 10_000
/** Types that were said to have no queue: their number has no bound. */
const MAX_SAID = 1_000

export class RabbitmqTransport implements Transport {
  readonly broker = BROKER
  readonly #connect: Connect
  readonly #options: RabbitmqTransportOptions
  /** Its own, since a broker that is short of memory stops reading from who publishes. */
  readonly #link: Link
  readonly #saidUnrouted = new Set<string>()
  /** By message id: those of calls that ran out of time. So a batch that is refused for the most part gets on. */
  readonly #refused = new Map<unknown, unknown>()
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
    const deadline = this.#deadline()
    const answers = await this.#publish(parcels, deadline)
    const returned = parcels.filter((_, at) => answers[at] === RETURNED)
    return returned.length === 0 ? answers : this.#unrouted(parcels, answers, returned, deadline)
  }

  async check(): Promise<void> {
    const connection = await this.#link.open()
    this.#refuseBlocked()
    // Before the caller gives up: then there is another connection when it asks again.
    await this.#link.answer(connection, ensureExchange(connection, this.#options.exchange), this.#limitMs)
  }

  isUnavailable(error: unknown): boolean {
    return causesOf(error).some((cause) => cause instanceof BrokerUnavailableError || isLost(cause))
  }

  async consume(options: ConsumeOptions): Promise<Consumption> {
    const { settings, exchange, singleActive, unrouted } = this.#options
    const queue = `${exchange}.${options.group}`
    const deadQueue = `${queue}.dead`
    const link = new Link(this.#connect, settings.clock)
    const consumption = new RabbitmqConsumption({
      ...options,
      link,
      exchange,
      queue,
      deadQueue,
      singleActive,
      clock: settings.clock,
      unrouted: unrouted === 'keep' ? this.#unroutedOf(link, options.onProblem) : undefined,
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
  async #publish(parcels: readonly Parcel[], deadline: number): Promise<unknown[]> {
    const publisher = await this.#open()
    this.#refuseBlocked()
    const answers = await publisher.publishAll(parcels, this.#leftMs(deadline))
    if (publisher.refusal) return this.#publishApart(parcels, answers, publisher, deadline)
    return answers.map((answer) => this.#explain(answer))
  }

  /**
   * The broker has closed the channel because of one of them, or of one of somebody else; it has looked at none that came
   * later. So they go again, in order, on a channel that nobody else uses, in groups that are halved where one is refused,
   * until it is clear whose fault it is.
   */
  async #publishApart(
    parcels: readonly Parcel[],
    answers: unknown[],
    refused: Publisher,
    deadline: number,
  ): Promise<unknown[]> {
    const idOf = (at: number) => parcels[at]?.properties.messageId
    const lost = [...parcels.keys()].filter((at) => isLost(answers[at]))
    const maxBytes = maxBytesOf(refused.refusal)
    for (const at of lost) {
      const isTooLarge = (parcels[at] as Parcel).body.byteLength > maxBytes
      answers[at] = isTooLarge ? refused.refusal : (this.#refused.get(idOf(at)) ?? answers[at])
    }
    const suspects = lost.filter((at) => isLost(answers[at]))
    await this.#settle(suspects, parcels, answers, refused, deadline)
    // The caller takes one of these for an outage, and all of them come again.
    const isDown = answers.some((answer) => answer instanceof BrokerUnavailableError)
    if (this.#refused.size > MAX_REFUSED) this.#refused.clear()
    for (const at of lost) {
      if (!isDown) this.#refused.delete(idOf(at))
      else if (isRefusal(answers[at])) this.#refused.set(idOf(at), answers[at])
    }
    return answers.map((answer) => this.#explain(answer))
  }

  /** Each gets its answer. Never rejects. */
  async #settle(
    all: readonly number[],
    parcels: readonly Parcel[],
    answers: unknown[],
    refused: Publisher,
    deadline: number,
  ): Promise<void> {
    let rest = all
    let publisher = refused
    let opening: Promise<Publisher> | undefined
    // One of the first so many is refused; where that is not known, groups grow.
    let suspects = rest.length
    let grown = 1
    try {
      while (rest.length > 0) {
        const group = rest.slice(0, suspects > 0 ? Math.ceil(suspects / 2) : grown)
        opening = this.#reopen(publisher)
        publisher = await this.#before(deadline, opening)
        const sent = group.map((at) => parcels[at] as Parcel)
        const outcomes = await publisher.publishAll(sent, this.#leftMs(deadline))
        const { refusal } = publisher
        const again: number[] = []
        for (const [n, at] of group.entries()) {
          const isRefused = refusal && isLost(outcomes[n])
          if (isRefused && group.length > 1) again.push(at)
          else answers[at] = this.#explain(isRefused ? explainRefusal(refusal) : outcomes[n])
        }
        rest = [...again, ...rest.slice(group.length)]
        suspects = refusal ? again.length : Math.max(0, suspects - group.length)
        grown = refusal ? 1 : grown * 2
        const down = group.map((at) => answers[at]).find((answer) => answer instanceof BrokerUnavailableError)
        if (down) throw down
      }
    } catch (error) {
      for (const at of rest) answers[at] = error
    } finally {
      opening?.then((last) => last.close()).catch(() => {})
    }
  }

  async #reopen(publisher: Publisher): Promise<Publisher> {
    if (publisher.isOpen) return publisher
    const { code } = (publisher.refusal ?? {}) as { readonly code?: unknown }
    return this.#openPublisher(code === NOT_FOUND)
  }

  async #unrouted(
    parcels: readonly Parcel[],
    answers: unknown[],
    returned: readonly Parcel[],
    deadline: number,
  ): Promise<unknown[]> {
    const { exchange, unrouted } = this.#options
    for (const { routingKey } of returned) this.#sayUnrouted(routingKey)
    const kept = unrouted === 'keep' ? await this.#putAll(`${exchange}.unrouted`, returned, deadline) : []
    const outcomes = new Map(
      returned.map((parcel, at) => [
        parcel,
        unrouted === 'keep' ? kept[at] : unroutedError(exchange, parcel.routingKey),
      ]),
    )
    return parcels.map((parcel, at) => (outcomes.has(parcel) ? outcomes.get(parcel) : answers[at]))
  }

  #unroutedOf(link: Link, onProblem: (reason: unknown) => void): Unrouted {
    const { settings, exchange } = this.#options
    const { clock, confirmTimeoutMs: publishMs } = settings
    return new Unrouted({
      ...{ link, exchange, clock, publishMs, onProblem },
      publish: (parcels) => this.#publish(parcels, this.#deadline()),
      keep: (parcels) => this.#putAll(`${exchange}.unrouted`, parcels),
    })
  }

  /** Straight into a queue, which is made where it is missing. */
  async #putAll(
    queue: string,
    parcels: readonly Pick<Parcel, 'body' | 'properties'>[],
    deadline = this.#deadline(),
  ): Promise<unknown[]> {
    try {
      const connection = await this.#link.open()
      await this.#before(
        deadline,
        this.#link.answer(connection, ensureQueue(connection, queue), this.#limitMs),
      )
      const addressed = parcels.map(({ body, properties }) => ({
        exchange: '',
        routingKey: queue,
        body,
        properties,
      }))
      const answers = await this.#publish(addressed, deadline)
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
    if (this.#publisher?.isOpen) return this.#publisher
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

  async #openPublisher(needsExchange = true): Promise<Publisher> {
    const { settings, exchange } = this.#options
    const connection = await this.#link.open()
    try {
      if (needsExchange)
        await this.#link.answer(connection, ensureExchange(connection, exchange), this.#limitMs)
      const opening = Publisher.open(connection, {
        clock: settings.clock,
        silenceMs: settings.confirmTimeoutMs,
        onSilence: () => {
          // Its socket is not read while it is blocked: then silence says nothing.
          if (this.#link.blocked === undefined)
            this.#link.drop(connection, new Error('no answer for too long'))
        },
      })
      return await this.#link.answer(connection, opening, this.#limitMs)
    } catch (error) {
      throw new BrokerUnavailableError(BROKER, 'cannot be used', this.#link.lastReason ?? error)
    }
  }

  get #limitMs(): number {
    return this.#options.settings.confirmTimeoutMs * TIMELY
  }

  #deadline(): number {
    return this.#options.settings.clock.monotonic() + this.#limitMs
  }

  #leftMs(deadline: number): number {
    const ms = deadline - this.#options.settings.clock.monotonic()
    if (ms <= 0) throw lateError()
    return ms
  }

  async #before<T>(deadline: number, work: Promise<T>): Promise<T> {
    if (!(await inTime(this.#options.settings.clock, work, this.#leftMs(deadline)))) throw lateError()
    return work
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

/** The broker says it with the refusal: then it is clear at once who is too large, and nobody has to be tried. */
function maxBytesOf(refusal: unknown): number {
  const { message } = refusal as { readonly message?: unknown }
  const [, bytes] = /larger than (?:configured )?max size (\d+)/.exec(String(message)) ?? []
  return bytes === undefined ? Number.POSITIVE_INFINITY : Number(bytes)
}

function isRefusal(answer: unknown): boolean {
  return answer !== null && answer !== RETURNED && !(answer instanceof BrokerUnavailableError)
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
