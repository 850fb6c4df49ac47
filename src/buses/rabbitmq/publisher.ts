import { bufferOf } from '../../bus/message.js'
import type { Clock, Timer } from '../../core/clock.js'
import { AftercommitError } from '../../core/errors.js'
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

interface PublisherOptions {
  readonly clock: Clock
  /** Nothing was confirmed for so long although something should be. */
  readonly silenceMs: number
  onSilence(): void
}

/** A channel with confirms. It ends with the first thing that the broker refuses on it. */
export class Publisher {
  readonly connection: AmqpConnection
  /** Why the broker has closed it; undefined when it has not, or when the connection broke. */
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

  /** Resolves when each of them has its answer: null, RETURNED, or what went wrong. */
  publishAll(parcels: readonly Parcel[]): Promise<unknown[]> {
    const answers: unknown[] = new Array(parcels.length).fill(null)
    if (parcels.length === 0) return Promise.resolve(answers)
    return new Promise((resolve) => {
      let left = parcels.length
      const answer = (at: number, outcome: unknown) => {
        answers[at] = outcome
        if (--left === 0) resolve(answers)
      }
      this.#turn = this.#turn.then(() => this.#writeAll(parcels, answer))
    })
  }

  async close(): Promise<void> {
    if (!this.isClosed) await this.#channel.close()
  }

  async #writeAll(parcels: readonly Parcel[], answer: (at: number, outcome: unknown) => void): Promise<void> {
    for (const [at, parcel] of parcels.entries()) {
      try {
        this.#checkSize(parcel)
        const hasRoom = this.#write(parcel, (outcome) => answer(at, outcome))
        if (!hasRoom) await this.#drained()
      } catch (error) {
        answer(at, error instanceof RangeError ? tooLong() : error)
      }
    }
  }

  #write(parcel: Parcel, answer: (outcome: unknown) => void): boolean {
    const { exchange, routingKey, properties, body } = parcel
    const content = bufferOf(body)
    const hasRoom = this.#channel.publish(exchange, routingKey, content, properties, (error) => {
      this.#unconfirmed--
      this.#confirmed++
      answer(error ?? (this.#returned.size > 0 && this.#wasReturned(parcel) ? RETURNED : null))
    })
    this.#unconfirmed++
    if (!this.#watch) this.#watchLater()
    return hasRoom
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

  /** The broker would close the connection of whoever sends more. */
  #checkSize({ properties }: Parcel): void {
    if (this.#frameBytes > MAX_HEADER_BYTES + OTHER_BYTES) return
    let bytes = OTHER_BYTES
    for (const [name, value] of Object.entries(properties.headers ?? {}))
      bytes += name.length + 6 + Buffer.byteLength(String(value))
    if (bytes > this.#frameBytes) throw tooLong()
  }
}

function keyOf({ fields, properties }: Pick<AmqpMessage, 'fields' | 'properties'>): string {
  const { messageId } = properties as { readonly messageId?: unknown }
  return `${fields.exchange} ${fields.routingKey} ${messageId}`
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
