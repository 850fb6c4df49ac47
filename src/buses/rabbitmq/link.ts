import type { Clock, Timer } from '../../core/clock.js'
import { BrokerUnavailableError, InvalidSettingError } from '../../core/errors.js'

/** What is used of a message of amqplib. */
export interface AmqpMessage {
  readonly content: Uint8Array
  readonly fields: { readonly exchange: string; readonly routingKey: string }
  /** Those of AMQP: `contentType`, `messageId`, `headers`, … */
  readonly properties: object
}

export interface AmqpDelivery extends AmqpMessage {
  readonly fields: {
    readonly exchange: string
    readonly routingKey: string
    readonly deliveryTag: number
    readonly redelivered: boolean
  }
}

/** What is used of a channel of amqplib. */
export interface AmqpChannel {
  on(event: string, listener: (what?: unknown) => void): unknown
  once(event: string, listener: (what?: unknown) => void): unknown
  removeListener(event: string, listener: (what?: unknown) => void): unknown
  close(): Promise<unknown>
  prefetch(count: number): Promise<unknown>
  assertExchange(name: string, type: string, options: { durable: boolean }): Promise<unknown>
  checkExchange(name: string): Promise<unknown>
  assertQueue(
    name: string,
    options: { durable: boolean; exclusive?: boolean; arguments: Record<string, unknown> },
  ): Promise<unknown>
  checkQueue(name: string): Promise<{ readonly messageCount: number }>
  deleteQueue(name: string): Promise<unknown>
  bindQueue(queue: string, exchange: string, pattern: string): Promise<unknown>
  consume(
    queue: string,
    onMessage: (message: AmqpDelivery | null) => void,
  ): Promise<{ readonly consumerTag: string }>
  cancel(consumerTag: string): Promise<unknown>
  // Methods, so that their types take amqplib's own, which know more of a message.
  ack(message: AmqpDelivery, allUpTo?: boolean): void
  nack(message: AmqpDelivery, allUpTo?: boolean, requeue?: boolean): void
}

export interface AmqpConfirmChannel extends AmqpChannel {
  publish(
    exchange: string,
    routingKey: string,
    content: Buffer,
    options: Record<string, unknown>,
    callback: (error: unknown) => void,
  ): boolean
}

/** What is used of a connection of amqplib (`ChannelModel`). */
export interface AmqpConnection {
  on(event: string, listener: (what?: unknown) => void): unknown
  createChannel(): Promise<AmqpChannel>
  createConfirmChannel(): Promise<AmqpConfirmChannel>
  close(): Promise<unknown>
}

/** A function that makes a new connection each time: `() => amqp.connect(url)`. */
export type Connect = () => Promise<AmqpConnection>

/** amqplib itself waits for ever. */
const CONNECT_MS = 10_000
/** So long a goodbye may take before the socket is closed without one. */
const GOODBYE_MS = 1_000

interface Open {
  readonly connection: AmqpConnection
  /** Why publishers have to wait; undefined when they need not. */
  blocked: string | undefined
  /** Why it was closed; undefined while it is open. */
  end: { readonly reason: unknown } | undefined
}

/** A connection of our own, made when it is needed and again after it was lost. */
export class Link {
  readonly #connect: Connect
  readonly #clock: Clock
  #open: Open | null = null
  #opening: Promise<Open> | null = null
  #abort: (() => void) | null = null

  constructor(connect: Connect, clock: Clock) {
    this.#connect = connect
    this.#clock = clock
  }

  /** Rejects with BrokerUnavailableError. Who comes while it is being made gets the same one. */
  async open(): Promise<AmqpConnection> {
    if (this.#open && !this.#open.end) return this.#open.connection
    this.#opening ??= this.#make().finally(() => {
      this.#opening = null
    })
    return (await this.#opening).connection
  }

  /** Why the broker takes nothing from this connection now, in its own words. */
  get blocked(): string | undefined {
    return this.#open?.blocked
  }

  /** Why the last connection was closed; undefined while it is open. */
  get lastReason(): unknown {
    return this.#open?.end?.reason
  }

  /** Nobody answers there: closes it without a goodbye, so that the next one who needs it makes another. */
  drop(connection: AmqpConnection, reason: Error): void {
    destroy(connection, reason)
    if (this.#open?.connection === connection) this.#open.end ??= { reason }
  }

  /** What the broker answers on this connection. One that does not answer in time is dropped, unless that is expected. */
  async answer<T>(connection: AmqpConnection, work: Promise<T>, limitMs = CONNECT_MS): Promise<T> {
    const isAnswered = await inTime(this.#clock, work, limitMs)
    if (isAnswered) return work
    if (this.blocked === undefined) this.drop(connection, new Error(`no answer within ${limitMs} ms`))
    throw new BrokerUnavailableError('RabbitMQ', `does not answer within ${limitMs} ms`)
  }

  /** Who waits for a connection is turned away; the next `open` makes another one. */
  async close(): Promise<void> {
    this.#abort?.()
    await this.#opening?.catch(() => {})
    const open = this.#open
    this.#open = null
    if (open && !open.end) await sayGoodbye(open.connection, this.#clock)
  }

  async #make(): Promise<Open> {
    const connection = await this.#connected()
    const open: Open = { connection, blocked: undefined, end: undefined }
    let lastError: unknown
    connection.on('error', (error) => {
      lastError = error
    })
    connection.on('close', (error) => {
      open.end ??= { reason: error ?? lastError }
    })
    connection.on('blocked', (reason) => {
      open.blocked = String(reason)
    })
    connection.on('unblocked', () => {
      open.blocked = undefined
    })
    this.#open = open
    return open
  }

  async #connected(): Promise<AmqpConnection> {
    let isUnwanted = false
    let timer: Timer | undefined
    const late = new Promise<never>((_, reject) => {
      const giveUp = (why: string) => {
        isUnwanted = true
        reject(new Error(why))
      }
      timer = this.#clock.setTimer(() => giveUp(`no connection within ${CONNECT_MS} ms`), CONNECT_MS)
      this.#abort = () => giveUp('the bus was stopped')
    })
    const connecting = (async () => checked(await this.#connect()))()
    connecting.then(
      (connection) => (isUnwanted ? sayGoodbye(connection, this.#clock) : undefined),
      () => {},
    )
    try {
      return await Promise.race([connecting, late])
    } catch (error) {
      if (error instanceof InvalidSettingError) throw error
      throw new BrokerUnavailableError('RabbitMQ', 'cannot be reached', error)
    } finally {
      timer?.cancel()
      this.#abort = null
    }
  }
}

function checked(connection: AmqpConnection): AmqpConnection {
  if (typeof connection?.createConfirmChannel === 'function' && !('waitForConnect' in connection))
    return connection
  throw new InvalidSettingError(
    'connect',
    'must answer a connection of amqplib without `recovery`: () => amqp.connect(url)',
  )
}

/** Never rejects, and does not wait for long. */
async function sayGoodbye(connection: AmqpConnection, clock: Clock): Promise<void> {
  // Its listeners are those of a connection that is in use; this one may have none.
  connection.on('error', () => {})
  const closed = (async () => connection.close())().catch(() => {})
  if (!(await inTime(clock, closed))) destroy(connection, new Error('no answer to the goodbye'))
}

/** amqplib has no way to end a connection that is silent; its socket has. The error makes it end its timers as well. */
function destroy(connection: AmqpConnection, reason: Error): void {
  const { stream } = (connection as { connection?: { stream?: { destroy?(error: Error): void } } })
    .connection ?? { stream: undefined }
  if (stream?.destroy) stream.destroy(reason)
  else void (async () => connection.close())().catch(() => {})
}

/** False when it takes longer. */
export async function inTime(clock: Clock, work: Promise<unknown>, ms = GOODBYE_MS): Promise<boolean> {
  let timer: Timer | undefined
  const late = new Promise<false>((resolve) => {
    timer = clock.setTimer(() => resolve(false), ms)
  })
  try {
    return await Promise.race([work.then(() => true), late])
  } finally {
    timer?.cancel()
  }
}
