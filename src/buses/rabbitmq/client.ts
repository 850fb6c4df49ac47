import type { Clock, Timer } from '../../core/clock.js'
import { BrokerUnavailableError, InvalidSettingError } from '../../core/errors.js'
import { BROKER } from './errors.js'

/** The members of a message of amqplib that the bus uses. */
export interface AmqpMessage {
  readonly content: Uint8Array
  readonly fields: { readonly exchange: string; readonly routingKey: string }
  /** Properties of AMQP: `contentType`, `messageId`, `headers`, … */
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

/** The members of a channel of amqplib that the bus uses. */
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
  // Declared as methods, because method parameters are bivariant and accept the message type of amqplib.
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

/** The members of a connection of amqplib (`ChannelModel`) that the bus uses. */
export interface AmqpConnection {
  on(event: string, listener: (what?: unknown) => void): unknown
  createChannel(): Promise<AmqpChannel>
  createConfirmChannel(): Promise<AmqpConfirmChannel>
  close(): Promise<unknown>
}

/** Creates a new connection on each call: `() => amqp.connect(url)`. */
export type Connect = () => Promise<AmqpConnection>

/** Maximum time in milliseconds for a connection attempt and for a reply. amqplib has no time limit of its own. */
const CONNECT_MS = 10_000
/** Maximum time in milliseconds for an orderly close. After it, the socket is destroyed. */
const CLOSE_MS = 1_000

interface OpenConnection {
  readonly connection: AmqpConnection
  /** Reason why the broker has blocked publishers, or undefined. */
  blocked: string | undefined
  /** Reason why the connection was closed. Undefined while it is open. */
  end: { readonly reason: unknown } | undefined
}

/** A connection that is opened on demand, and opened again after it was lost. */
export class ManagedConnection {
  readonly #connect: Connect
  readonly #clock: Clock
  #open: OpenConnection | null = null
  #opening: Promise<OpenConnection> | null = null
  #abort: (() => void) | null = null

  constructor(connect: Connect, clock: Clock) {
    this.#connect = connect
    this.#clock = clock
  }

  /** Returns the open connection, or opens one. Concurrent calls share one attempt. Rejects with BrokerUnavailableError. */
  async open(): Promise<AmqpConnection> {
    if (this.#open && !this.#open.end) return this.#open.connection
    this.#opening ??= this.#make().finally(() => {
      this.#opening = null
    })
    return (await this.#opening).connection
  }

  /** Reason, in the words of the broker, why it does not accept messages on this connection. Otherwise undefined. */
  get blocked(): string | undefined {
    return this.#open?.blocked
  }

  /** Reason why the last connection was closed. Undefined while it is open. */
  get lastReason(): unknown {
    return this.#open?.end?.reason
  }

  /** Destroys a connection that does not answer. The next call of `open` creates another connection. */
  drop(connection: AmqpConnection, reason: Error): void {
    destroy(connection, reason)
    if (this.#open?.connection === connection) this.#open.end ??= { reason }
  }

  /** Waits for a reply of the broker. Drops the connection after `limitMs`, unless the broker has blocked it. */
  async waitFor<T>(connection: AmqpConnection, work: Promise<T>, limitMs = CONNECT_MS): Promise<T> {
    const isAnswered = await endsWithin(this.#clock, work, limitMs)
    if (isAnswered) return work
    if (this.blocked === undefined) this.drop(connection, new Error(`no answer within ${limitMs} ms`))
    throw new BrokerUnavailableError(BROKER, `does not answer within ${limitMs} ms`)
  }

  /** Rejects a pending `open` and closes the connection. The next call of `open` creates another connection. */
  async close(): Promise<void> {
    this.#abort?.()
    await this.#opening?.catch(() => {})
    const open = this.#open
    this.#open = null
    if (open && !open.end) await closeQuietly(open.connection, this.#clock)
  }

  async #make(): Promise<OpenConnection> {
    const connection = await this.#connected()
    const open: OpenConnection = { connection, blocked: undefined, end: undefined }
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
    let isAbandoned = false
    let timer: Timer | undefined
    const late = new Promise<never>((_, reject) => {
      const giveUp = (why: string) => {
        isAbandoned = true
        reject(new Error(why))
      }
      timer = this.#clock.setTimer(() => giveUp(`no connection within ${CONNECT_MS} ms`), CONNECT_MS)
      this.#abort = () => giveUp('the bus was stopped')
    })
    const connecting = (async () => checked(await this.#connect()))()
    connecting.then(
      (connection) => (isAbandoned ? closeQuietly(connection, this.#clock) : undefined),
      () => {},
    )
    try {
      return await Promise.race([connecting, late])
    } catch (error) {
      if (error instanceof InvalidSettingError) throw error
      throw new BrokerUnavailableError(BROKER, 'cannot be reached', error)
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
    'must return a connection of amqplib without `recovery`: () => amqp.connect(url)',
  )
}

/** Closes a connection, or destroys it after CLOSE_MS. Never rejects. */
async function closeQuietly(connection: AmqpConnection, clock: Clock): Promise<void> {
  // A connection that was abandoned during its creation has no error listener yet.
  connection.on('error', () => {})
  const closed = (async () => connection.close())().catch(() => {})
  if (!(await endsWithin(clock, closed))) destroy(connection, new Error('no answer to the close'))
}

/** Destroys the socket, because amqplib cannot end a silent connection. The error makes amqplib stop its timers, too. */
function destroy(connection: AmqpConnection, reason: Error): void {
  const { stream } = (connection as { connection?: { stream?: { destroy?(error: Error): void } } })
    .connection ?? { stream: undefined }
  if (stream?.destroy) stream.destroy(reason)
  else void (async () => connection.close())().catch(() => {})
}

/** Resolves with false if the work takes longer than `ms`. */
export async function endsWithin(clock: Clock, work: Promise<unknown>, ms = CLOSE_MS): Promise<boolean> {
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
