import { bufferOf } from '../../bus/message.js'
import type { Clock, Timer } from '../../core/clock.js'
import { AftercommitError, BrokerUnavailableError } from '../../core/errors.js'
import type { AmqpConfirmChannel, AmqpConnection, AmqpMessage } from './link.js'

/** A message on its way into an exchange. */
export interface Parcel {
  readonly exchange: string
  readonly routingKey: string
  readonly body: Uint8Array
  readonly properties: Record<string, unknown>
}

/** The broker has confirmed it, and no queue has taken it. */
export const RETURNED: unique symbol = Symbol('returned')

/** The room that amqplib has for headers. */
const MAX_HEADER_BYTES = 65_536
/** Of a frame: what there is besides the headers, at most. */
const OTHER_BYTES = 2_048

/** It has no answer yet. */
const LATE: unique symbol = Symbol('late')

interface Call {
  readonly parcels: readonly Parcel[]
  /** Nobody waits for it any more. */
  isOver: boolean
  /** The first one counts. */
  answer(at: number, outcome: unknown): void
}

interface PublisherOptions {
  readonly clock: Clock
  /** Nothing was confirmed for so long although something should be. */
  readonly silenceMs: number
  onSilence(): void
}

/** A channel with confirms. It ends with the first thing that the broker refuses on it. */
export class Publisher {
  readonly connection: AmqpConnection
  /** Why it is of no use any more: of the broker or of amqplib; undefined when it is, or when the connection broke. */
  refusal: unknown
  isClosed = false
  readonly #channel: AmqpConfirmChannel
  readonly #options: PublisherOptions
  readonly #returned = new Map<string, number>()
  readonly #frameBytes: number
  /** Who writes waits for who came before, so that a full buffer changes no order. */
  #turn: Promise<void> = Promise.resolve()
  #unconfirmed = 0
  #confirmed = 0
  #watch: Timer | null = null

  private constructor(connection: AmqpConnection, channel: AmqpConfirmChannel, options: PublisherOptions) {
    this.connection = connection
    this.#channel = channel
    this.#options = options
    this.#frameBytes = frameBytesOf(connection)
    channel.on('error', (error) => {
      this.refusal = error
    })
    channel.on('close', () => {
      this.isClosed = true
      this.#watch?.cancel()
    })
    channel.on('return', (message) => {
      const key = keyOf(message as AmqpMessage)
      this.#returned.set(key, (this.#returned.get(key) ?? 0) + 1)
    })
  }

  static async open(connection: AmqpConnection, options: PublisherOptions): Promise<Publisher> {
    return new Publisher(connection, await connection.createConfirmChannel(), options)
  }

  /**
   * Resolves when each of them has its answer: null, RETURNED, or what went wrong. Those that have none after `limitMs` are
   * answered with BrokerUnavailableError, and are not written any more.
   */
  publishAll(parcels: readonly Parcel[], limitMs: number): Promise<unknown[]> {
    const answers: unknown[] = new Array(parcels.length).fill(LATE)
    if (parcels.length === 0) return Promise.resolve(answers)
    return new Promise((resolve) => {
      const call: Call = { parcels, isOver: false, answer: () => {} }
      const end = () => {
        call.isOver = true
        timer.cancel()
        resolve(answers.map((answer) => (answer === LATE ? lateError() : answer)))
      }
      const timer = this.#options.clock.setTimer(end, limitMs)
      let left = parcels.length
      call.answer = (at, outcome) => {
        if (answers[at] !== LATE) return
        answers[at] = outcome
        if (--left === 0) end()
      }
      this.#turn = this.#turn.then(() => this.#writeAll(call))
    })
  }

  get isOpen(): boolean {
    return !this.isClosed && this.refusal === undefined
  }

  async close(): Promise<void> {
    if (!this.isClosed) await this.#channel.close()
  }

  async #writeAll(call: Call): Promise<void> {
    for (const [at, parcel] of call.parcels.entries()) {
      if (call.isOver) return
      try {
        this.#checkSize(parcel)
        const hasRoom = this.#write(parcel, (outcome) => call.answer(at, outcome))
        if (!hasRoom) await this.#drained()
      } catch (error) {
        call.answer(at, error instanceof RangeError ? tooLong() : error)
      }
    }
  }

  #write(parcel: Parcel, answer: (outcome: unknown) => void): boolean {
    const { exchange, routingKey, properties, body } = parcel
    const content = bufferOf(body)
    const confirm = (error: unknown) => {
      this.#unconfirmed--
      this.#confirmed++
      answer(error ?? (this.#returned.size > 0 && this.#wasReturned(parcel) ? RETURNED : null))
    }
    // As amqplib says it of a closed channel.
    if (this.refusal !== undefined) throw new Error('channel closed')
    this.#unconfirmed++
    let hasRoom = false
    try {
      hasRoom = this.#channel.publish(exchange, routingKey, content, properties, confirm)
    } catch (error) {
      this.#abandon(error)
      throw error
    }
    if (!this.#watch) this.#watchLater()
    return hasRoom
  }

  /** Some versions of amqplib count what they could not write: from here on they would confirm the wrong ones. */
  #abandon(reason: unknown): void {
    this.#unconfirmed--
    if (this.isClosed) return
    this.refusal ??= reason
    this.close().catch(() => {})
  }

  /** The broker says so before it confirms. */
  #wasReturned(parcel: Parcel): boolean {
    const key = keyOf({ fields: parcel, properties: parcel.properties })
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

  #watchLater(): void {
    const { clock, silenceMs, onSilence } = this.#options
    const before = this.#confirmed
    this.#watch = clock.setTimer(() => {
      this.#watch = null
      if (this.#unconfirmed === 0 || this.isClosed) return
      if (this.#confirmed === before) onSilence()
      if (!this.isClosed) this.#watchLater()
    }, silenceMs)
    this.#watch.unref?.()
  }

  /** The broker would close the connection of whoever sends more, and amqplib fails. */
  #checkSize({ properties }: Parcel): void {
    const headers = properties.headers ?? {}
    const limit = Math.min(MAX_HEADER_BYTES, this.#frameBytes - OTHER_BYTES)
    // A character of UTF-16 has three bytes at most.
    if (bytesOf(headers, (text) => text.length * 3) <= limit) return
    if (bytesOf(headers, Buffer.byteLength) > limit) throw tooLong()
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

export function lateError(): BrokerUnavailableError {
  return new BrokerUnavailableError('RabbitMQ', 'has not confirmed in time')
}

function tooLong(): AftercommitError {
  return new AftercommitError(
    'EVENT_TOO_LARGE',
    'RabbitMQ has no room for so many headers in a message. Put what is long into the payload.',
  )
}

function frameBytesOf(connection: AmqpConnection): number {
  const { frameMax } = (connection as { connection?: { frameMax?: unknown } }).connection ?? {
    frameMax: undefined,
  }
  return typeof frameMax === 'number' && frameMax > 0 ? frameMax : Number.POSITIVE_INFINITY
}
