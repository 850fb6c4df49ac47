import type { BusSettings } from '../../bus/settings.js'
import type { DeadLetterReason, OutgoingMessage } from '../../bus.js'
import { AftercommitError, BrokerUnavailableError } from '../../core/errors.js'
import { type AmqpDelivery, type Connect, endsWithin, ManagedConnection } from './client.js'
import { type AddressedMessage, ConfirmChannel, RETURNED } from './confirm-channel.js'
import {
  BROKER,
  codeOf,
  isConnectionLost,
  isNack,
  maxBytesOf,
  NOT_FOUND,
  publishErrorOf,
  timeoutError,
  unroutedError,
} from './errors.js'
import { deadLetterProperties, propertiesOf, routingKeyOf, shortened } from './message.js'
import { ensureExchange, ensureQueue } from './topology.js'
import { UnroutedRepublisher } from './unrouted.js'

export interface RabbitmqSettings extends BusSettings {
  readonly exchange: string
  readonly unrouted: 'keep' | 'refuse' | 'drop'
}

/** A message without an address, for a queue that is given separately. */
type Content = Pick<AddressedMessage, 'body' | 'properties'>

/** Share of the confirm timeout that `send` uses, so that known answers reach the bus before its own timeout ends. */
const TIMEOUT_SHARE = 0.8
/** Maximum number of remembered refusals. */
const MAX_REFUSED = 10_000
/** Maximum number of types for which a missing queue is logged. */
const MAX_LOGGED_TYPES = 1_000

/** Publishes messages to the exchange, and copies messages to the queues for dead letters and for unrouted events. */
export class RabbitmqSender {
  readonly #settings: RabbitmqSettings
  /** Separate from the connections of consumers, because RabbitMQ stops reading from publishers when it is short of memory. */
  readonly #connection: ManagedConnection
  readonly #loggedTypes = new Set<string>()
  /**
   * Refusals by message id that were found in calls that ran out of time. The next call need not find them again, so a batch
   * with many refused messages makes progress.
   */
  readonly #refused = new Map<unknown, unknown>()
  #channel: ConfirmChannel | null = null
  #opening: Promise<ConfirmChannel> | null = null

  constructor(connect: Connect, settings: RabbitmqSettings) {
    this.#settings = settings
    this.#connection = new ManagedConnection(connect, settings.clock)
  }

  async send(outgoing: readonly OutgoingMessage[]): Promise<readonly (unknown | null)[]> {
    const { exchange, unrouted } = this.#settings
    const messages = outgoing.map(
      (message): AddressedMessage => ({
        exchange,
        routingKey: routingKeyOf(message.type),
        body: message.body,
        properties: propertiesOf(message, unrouted !== 'drop'),
      }),
    )
    const deadline = this.#deadline()
    const answers = await this.#publish(messages, deadline)
    const returned = messages.filter((_, at) => answers[at] === RETURNED)
    return returned.length === 0 ? answers : this.#handleReturned(messages, answers, returned, deadline)
  }

  async check(): Promise<void> {
    const connection = await this.#connection.open()
    this.#throwIfBlocked()
    // The time limit is shorter than that of the bus, so a silent connection is replaced before the next check.
    const declared = ensureExchange(connection, this.#settings.exchange)
    await this.#connection.waitFor(connection, declared, this.#timeoutMs)
  }

  /** Copies a message to the queue for dead letters. Shortens the headers if the message is too large for RabbitMQ. */
  async sendDeadLetter(queue: string, delivery: AmqpDelivery, reason: DeadLetterReason): Promise<void> {
    const letter = { body: delivery.content, properties: deadLetterProperties(delivery, reason) }
    const [error] = await this.#sendToQueue(queue, [letter])
    if (!error) return
    if (!(error instanceof AftercommitError) || error.code !== 'EVENT_TOO_LARGE') throw error
    const short = { ...letter, properties: shortened(letter.properties) }
    const [again] = await this.#sendToQueue(queue, [short])
    if (again) throw again
  }

  /** Returns undefined if unrouted events are not kept. `managed` is the connection of the consumer. */
  createRepublisher(
    managed: ManagedConnection,
    onError: (error: unknown) => void,
  ): UnroutedRepublisher | undefined {
    const { clock, exchange, unrouted, confirmTimeoutMs: publishMs } = this.#settings
    if (unrouted !== 'keep') return undefined
    return new UnroutedRepublisher({
      ...{ managed, exchange, clock, publishMs, onError },
      publish: (messages) => this.#publish(messages, this.#deadline()),
      keep: (messages) => this.#sendToQueue(`${exchange}.unrouted`, messages),
    })
  }

  async close(): Promise<void> {
    this.#channel = null
    this.#opening = null
    await this.#connection.close()
  }

  /** Resolves with one answer per message: null, RETURNED or an error. Errors of the broker are BrokerUnavailableErrors. */
  async #publish(messages: readonly AddressedMessage[], deadline: number): Promise<unknown[]> {
    const channel = await this.#open()
    this.#throwIfBlocked()
    const answers = await channel.publishAll(messages, this.#leftMs(deadline))
    if (channel.refusal) return this.#publishApart(messages, answers, channel, deadline)
    return answers.map((answer) => this.#answerOf(answer))
  }

  /**
   * Publishes again after the broker has closed the channel because it refused a message. The refused message may belong to
   * another call, and the broker has ignored all later messages. The lost messages are published again in order, on a channel
   * that no other call uses. A group with a refused message is halved until the refused message is known.
   */
  async #publishApart(
    messages: readonly AddressedMessage[],
    answers: unknown[],
    refused: ConfirmChannel,
    deadline: number,
  ): Promise<unknown[]> {
    const idOf = (at: number) => messages[at]?.properties.messageId
    const lost = [...messages.keys()].filter((at) => isConnectionLost(answers[at]))
    const maxBytes = maxBytesOf(refused.refusal)
    for (const at of lost) {
      const isTooLarge = (messages[at] as AddressedMessage).body.byteLength > maxBytes
      answers[at] = isTooLarge ? refused.refusal : (this.#refused.get(idOf(at)) ?? answers[at])
    }
    const suspects = lost.filter((at) => isConnectionLost(answers[at]))
    await this.#publishInGroups(suspects, messages, answers, refused, deadline)
    // If one answer is an outage, the relay sends all lost messages again, and needs the refusals that are already known.
    const isDown = answers.some((answer) => answer instanceof BrokerUnavailableError)
    if (this.#refused.size > MAX_REFUSED) this.#refused.clear()
    for (const at of lost) {
      if (!isDown) this.#refused.delete(idOf(at))
      else if (isRefusal(answers[at])) this.#refused.set(idOf(at), answers[at])
    }
    return answers.map((answer) => this.#answerOf(answer))
  }

  /** Fills in the answers of the messages at the given positions. Never rejects. */
  async #publishInGroups(
    positions: readonly number[],
    messages: readonly AddressedMessage[],
    answers: unknown[],
    refused: ConfirmChannel,
    deadline: number,
  ): Promise<void> {
    let rest = positions
    let channel = refused
    let opening: Promise<ConfirmChannel> | undefined
    // Number of messages at the front of `rest` that contain a refused message. If it is 0, the groups grow.
    let suspects = rest.length
    let grown = 1
    try {
      while (rest.length > 0) {
        const group = rest.slice(0, suspects > 0 ? Math.ceil(suspects / 2) : grown)
        opening = this.#reopen(channel)
        channel = await this.#before(deadline, opening)
        const sent = group.map((at) => messages[at] as AddressedMessage)
        const outcomes = await channel.publishAll(sent, this.#leftMs(deadline))
        const { refusal } = channel
        const again: number[] = []
        for (const [n, at] of group.entries()) {
          const isRefused = refusal && isConnectionLost(outcomes[n])
          if (isRefused && group.length > 1) again.push(at)
          else answers[at] = this.#answerOf(isRefused ? publishErrorOf(refusal) : outcomes[n])
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

  async #reopen(channel: ConfirmChannel): Promise<ConfirmChannel> {
    if (channel.isOpen) return channel
    return this.#openChannel(codeOf(channel.refusal) === NOT_FOUND)
  }

  /** Keeps or refuses the messages that RabbitMQ has returned because no queue received them. */
  async #handleReturned(
    messages: readonly AddressedMessage[],
    answers: unknown[],
    returned: readonly AddressedMessage[],
    deadline: number,
  ): Promise<unknown[]> {
    const { exchange, unrouted } = this.#settings
    for (const { routingKey } of returned) this.#logUnrouted(routingKey)
    const isKept = unrouted === 'keep'
    const kept = isKept ? await this.#sendToQueue(`${exchange}.unrouted`, returned, deadline) : []
    const outcomes = new Map(
      returned.map((message, at) => [
        message,
        isKept ? kept[at] : unroutedError(exchange, message.routingKey),
      ]),
    )
    return messages.map((message, at) => (outcomes.has(message) ? outcomes.get(message) : answers[at]))
  }

  /** Creates a missing queue and sends messages to it directly. Resolves with one answer per message, and never rejects. */
  async #sendToQueue(
    queue: string,
    contents: readonly Content[],
    deadline = this.#deadline(),
  ): Promise<unknown[]> {
    try {
      const connection = await this.#connection.open()
      const declared = ensureQueue(connection, queue)
      await this.#before(deadline, this.#connection.waitFor(connection, declared, this.#timeoutMs))
      const addressed = contents.map(({ body, properties }) => ({
        exchange: '',
        routingKey: queue,
        body,
        properties,
      }))
      const answers = await this.#publish(addressed, deadline)
      // RabbitMQ returns the message if the queue was deleted in the meantime.
      return answers.map((answer) => (answer === RETURNED ? unroutedError('', queue) : answer))
    } catch (error) {
      return contents.map(() => error)
    }
  }

  async #open(): Promise<ConfirmChannel> {
    if (this.#channel?.isOpen) return this.#channel
    if (!this.#opening) {
      const opening = this.#openChannel()
      this.#opening = opening
      opening.then(
        (channel) => {
          if (this.#opening !== opening) return
          this.#channel = channel
          this.#opening = null
        },
        () => {
          if (this.#opening === opening) this.#opening = null
        },
      )
    }
    return this.#opening
  }

  async #openChannel(needsExchange = true): Promise<ConfirmChannel> {
    const { clock, confirmTimeoutMs, exchange } = this.#settings
    const connection = await this.#connection.open()
    try {
      if (needsExchange)
        await this.#connection.waitFor(connection, ensureExchange(connection, exchange), this.#timeoutMs)
      const opening = ConfirmChannel.open(connection, {
        clock,
        silenceMs: confirmTimeoutMs,
        onSilence: () => {
          // RabbitMQ does not read from a blocked connection, so its silence does not mean that it is broken.
          if (this.#connection.blocked === undefined)
            this.#connection.drop(connection, new Error('no answer for too long'))
        },
      })
      return await this.#connection.waitFor(connection, opening, this.#timeoutMs)
    } catch (error) {
      throw new BrokerUnavailableError(BROKER, 'cannot be used', this.#connection.lastReason ?? error)
    }
  }

  get #timeoutMs(): number {
    return this.#settings.confirmTimeoutMs * TIMEOUT_SHARE
  }

  #deadline(): number {
    return this.#settings.clock.monotonic() + this.#timeoutMs
  }

  #leftMs(deadline: number): number {
    const ms = deadline - this.#settings.clock.monotonic()
    if (ms <= 0) throw timeoutError()
    return ms
  }

  async #before<T>(deadline: number, work: Promise<T>): Promise<T> {
    if (!(await endsWithin(this.#settings.clock, work, this.#leftMs(deadline)))) throw timeoutError()
    return work
  }

  #throwIfBlocked(): void {
    const { blocked } = this.#connection
    if (blocked !== undefined) throw new BrokerUnavailableError(BROKER, `takes nothing now (${blocked})`)
  }

  #answerOf(outcome: unknown): unknown {
    if (outcome === null || outcome === RETURNED || outcome instanceof AftercommitError) return outcome
    if (isNack(outcome)) return new BrokerUnavailableError(BROKER, 'could not store it', outcome)
    if (!isConnectionLost(outcome)) return outcome
    const cause = this.#connection.lastReason ?? outcome
    return new BrokerUnavailableError(BROKER, 'has closed the connection', cause)
  }

  #logUnrouted(type: string): void {
    if (this.#loggedTypes.has(type) || this.#loggedTypes.size >= MAX_LOGGED_TYPES) return
    this.#loggedTypes.add(type)
    const { logger, exchange, unrouted } = this.#settings
    const what = unrouted === 'keep' ? `kept in ${exchange}.unrouted` : 'refused'
    logger.warn({ event_type: type, exchange }, `RabbitMQ has no queue for these events: ${what}`)
  }
}

function isRefusal(answer: unknown): boolean {
  return answer !== null && answer !== RETURNED && !(answer instanceof BrokerUnavailableError)
}
