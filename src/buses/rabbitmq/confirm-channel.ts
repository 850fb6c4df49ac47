import { bufferOf } from '../../bus/message.js'
import type { Clock, Timer } from '../../core/clock.js'
import { AftercommitError } from '../../core/errors.js'
import type { AmqpConfirmChannel, AmqpConnection, AmqpMessage } from './client.js'
import { timeoutError } from './errors.js'

/** A message with the exchange that receives it. */
export interface AddressedMessage {
  readonly exchange: string
  readonly routingKey: string
  readonly body: Uint8Array
  readonly properties: Record<string, unknown>
}

/** Answer for a message that the broker has confirmed and that no queue has received. */
export const RETURNED: unique symbol = Symbol('returned')

/** Size of the buffer that amqplib has for headers. */
const MAX_HEADER_BYTES = 65_536
/** Maximum number of bytes in a header frame besides the headers. */
const OTHER_BYTES = 2_048

/** Placeholder for an answer that has not arrived. */
const PENDING: unique symbol = Symbol('pending')

interface PublishCall {
  readonly messages: readonly AddressedMessage[]
  /** Whether the caller has its answers and does not wait any more. */
  isOver: boolean
  /** Sets the answer of a message. Only the first answer counts. */
  answer(at: number, outcome: unknown): void
}

interface ConfirmChannelOptions {
  readonly clock: Clock
  /** Time in milliseconds without a confirmation, while messages are unconfirmed, after which `onSilence` is called. */
  readonly silenceMs: number
  onSilence(): void
}

/** A channel with publisher confirms. The broker closes it when it refuses a message. */
export class ConfirmChannel {
  readonly connection: AmqpConnection
  /** Error of the broker or of amqplib that ended the channel. Undefined if the channel is open or the connection was lost. */
  refusal: unknown
  isClosed = false
  readonly #channel: AmqpConfirmChannel
  readonly #options: ConfirmChannelOptions
  readonly #returned = new Map<string, number>()
  readonly #frameBytes: number
  /** Ends when all earlier calls have written their messages, so that a full buffer does not change the order. */
  #writing: Promise<void> = Promise.resolve()
  #unconfirmed = 0
  #confirmed = 0
  #silenceTimer: Timer | null = null

  private constructor(
    connection: AmqpConnection,
    channel: AmqpConfirmChannel,
    options: ConfirmChannelOptions,
  ) {
    this.connection = connection
    this.#channel = channel
    this.#options = options
    this.#frameBytes = frameBytesOf(connection)
    channel.on('error', (error) => {
      this.refusal = error
    })
    channel.on('close', () => {
      this.isClosed = true
      this.#silenceTimer?.cancel()
    })
    channel.on('return', (message) => {
      const key = keyOf(message as AmqpMessage)
      this.#returned.set(key, (this.#returned.get(key) ?? 0) + 1)
    })
  }

  static async open(connection: AmqpConnection, options: ConfirmChannelOptions): Promise<ConfirmChannel> {
    return new ConfirmChannel(connection, await connection.createConfirmChannel(), options)
  }

  /**
   * Publishes messages. Resolves with one answer per message: null, RETURNED or an error. After `limitMs`, messages without an
   * answer get a BrokerUnavailableError, and messages that were not written are skipped.
   */
  publishAll(messages: readonly AddressedMessage[], limitMs: number): Promise<unknown[]> {
    const answers: unknown[] = new Array(messages.length).fill(PENDING)
    if (messages.length === 0) return Promise.resolve(answers)
    return new Promise((resolve) => {
      const call: PublishCall = { messages, isOver: false, answer: () => {} }
      const end = () => {
        call.isOver = true
        timer.cancel()
        resolve(answers.map((answer) => (answer === PENDING ? timeoutError() : answer)))
      }
      const timer = this.#options.clock.setTimer(end, limitMs)
      let left = messages.length
      call.answer = (at, outcome) => {
        if (answers[at] !== PENDING) return
        answers[at] = outcome
        if (--left === 0) end()
      }
      this.#writing = this.#writing.then(() => this.#writeAll(call))
    })
  }

  get isOpen(): boolean {
    return !this.isClosed && this.refusal === undefined
  }

  async close(): Promise<void> {
    if (!this.isClosed) await this.#channel.close()
  }

  async #writeAll(call: PublishCall): Promise<void> {
    for (const [at, message] of call.messages.entries()) {
      if (call.isOver) return
      try {
        this.#checkSize(message)
        const hasCapacity = this.#write(message, (outcome) => call.answer(at, outcome))
        if (!hasCapacity) await this.#drained()
      } catch (error) {
        call.answer(at, error instanceof RangeError ? headersTooLarge() : error)
      }
    }
  }

  #write(message: AddressedMessage, answer: (outcome: unknown) => void): boolean {
    const { exchange, routingKey, properties, body } = message
    const content = bufferOf(body)
    const confirm = (error: unknown) => {
      this.#unconfirmed--
      this.#confirmed++
      answer(error ?? (this.#returned.size > 0 && this.#wasReturned(message) ? RETURNED : null))
    }
    // The text is the same as that of amqplib for a closed channel.
    if (this.refusal !== undefined) throw new Error('channel closed')
    this.#unconfirmed++
    let hasCapacity = false
    try {
      hasCapacity = this.#channel.publish(exchange, routingKey, content, properties, confirm)
    } catch (error) {
      this.#closeAfter(error)
      throw error
    }
    if (!this.#silenceTimer) this.#checkSilenceLater()
    return hasCapacity
  }

  /**
   * Closes the channel after a failed write. amqplib 0.10 has registered the message by then, so later confirms
   * would belong to the wrong messages.
   */
  #closeAfter(reason: unknown): void {
    this.#unconfirmed--
    if (this.isClosed) return
    this.refusal ??= reason
    this.close().catch(() => {})
  }

  /** RabbitMQ returns a message before it confirms the message. */
  #wasReturned(message: AddressedMessage): boolean {
    const key = keyOf({ fields: message, properties: message.properties })
    const count = this.#returned.get(key) ?? 0
    if (count > 1) this.#returned.set(key, count - 1)
    else this.#returned.delete(key)
    return count > 0
  }

  #drained(): Promise<void> {
    if (this.isClosed) return Promise.resolve()
    return new Promise((resolve) => {
      const done = () => {
        this.#channel.removeListener('drain', done)
        this.#channel.removeListener('close', done)
        resolve()
      }
      this.#channel.once('drain', done)
      this.#channel.once('close', done)
    })
  }

  #checkSilenceLater(): void {
    const { clock, silenceMs, onSilence } = this.#options
    const before = this.#confirmed
    this.#silenceTimer = clock.setTimer(() => {
      this.#silenceTimer = null
      if (this.#unconfirmed === 0 || this.isClosed) return
      if (this.#confirmed === before) onSilence()
      if (!this.isClosed) this.#checkSilenceLater()
    }, silenceMs)
    this.#silenceTimer.unref?.()
  }

  /** Throws if the headers are too large. amqplib would fail, or the broker would close the connection. */
  #checkSize({ properties }: AddressedMessage): void {
    const headers = properties.headers ?? {}
    const limit = Math.min(MAX_HEADER_BYTES, this.#frameBytes - OTHER_BYTES)
    // A UTF-16 code unit takes at most three bytes in UTF-8, so most messages need no exact count.
    if (bytesOf(headers, (text) => text.length * 3) <= limit) return
    if (bytesOf(headers, Buffer.byteLength) > limit) throw headersTooLarge()
  }
}

function bytesOf(headers: object, lengthOf: (text: string) => number): number {
  let bytes = 4
  for (const [name, value] of Object.entries(headers)) bytes += 6 + lengthOf(name) + lengthOf(String(value))
  return bytes
}

function keyOf({ fields, properties }: Pick<AmqpMessage, 'fields' | 'properties'>): string {
  const { messageId } = properties as { readonly messageId?: unknown }
  return `${fields.exchange} ${fields.routingKey} ${messageId}`
}

function headersTooLarge(): AftercommitError {
  return new AftercommitError(
    'EVENT_TOO_LARGE',
    'The headers of the event are too large for RabbitMQ. Move long values into the payload.',
  )
}

function frameBytesOf(connection: AmqpConnection): number {
  const { frameMax } = (connection as { connection?: { frameMax?: unknown } }).connection ?? {
    frameMax: undefined,
  }
  return typeof frameMax === 'number' && frameMax > 0 ? frameMax : Number.POSITIVE_INFINITY
}
