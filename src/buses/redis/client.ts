import type { Clock, Timer } from '../../core/clock.js'
import { BrokerUnavailableError, InvalidSettingError } from '../../core/errors.js'

export const BROKER = 'Redis'

/** The methods of node-redis 5 or later that the bus calls. */
export interface NodeRedisClient {
  readonly isOpen: boolean
  readonly isReady: boolean
  sendCommand(args: readonly (string | Buffer)[], options?: object): Promise<unknown>
  duplicate(overrides?: object): NodeRedisClient
  connect(): Promise<unknown>
  destroy(): void
  on(event: string, listener: (...args: unknown[]) => void): unknown
  once(event: string, listener: (...args: unknown[]) => void): unknown
}

/** The methods of ioredis 5 or later that the bus calls. */
export interface IoRedisClient {
  readonly status: string
  callBuffer(command: string, args: (string | Buffer)[]): Promise<unknown>
  duplicate(overrides?: object): IoRedisClient
  connect(): Promise<unknown>
  disconnect(): void
  on(event: string, listener: (...args: unknown[]) => void): unknown
  once(event: string, listener: (...args: unknown[]) => void): unknown
}

export type RedisClient = NodeRedisClient | IoRedisClient

export type Argument = string | Buffer

/** Common interface for a connection of both libraries. Texts in replies are Buffers. */
export interface Connection {
  /** Whether the client is reconnecting. It would queue a command without a time limit. */
  isConnecting(): boolean
  whenReady(listener: () => void): void
  call(args: readonly Argument[]): Promise<unknown>
  /** Creates an unconnected connection with the same settings, whose commands fail at once while it is not connected. */
  duplicate(): Connection
  connect(): Promise<unknown>
  /** Closes the connection at once. Pending commands fail. */
  destroy(): void
}

export function connectionOf(client: RedisClient): Connection {
  const given = client as
    | Partial<NodeRedisClient & IoRedisClient & Record<string, unknown>>
    | null
    | undefined
  // Clusters and pools use several connections, so commands may be reordered. A cluster also needs the key of each command.
  const isMany = given?.isCluster === true || typeof given?.execute === 'function' || 'slots' in (given ?? {})
  if (!isMany && typeof given?.callBuffer === 'function') return new IoRedis(client as IoRedisClient)
  if (!isMany && typeof given?.sendCommand === 'function' && 'isReady' in given)
    return new NodeRedis(client as NodeRedisClient)
  throw new InvalidSettingError(
    'client',
    'must be one client of the package redis or ioredis, not a cluster or a pool',
  )
}

/** Maps RESP type bytes: texts become Buffers, and maps of RESP3 become flat lists. */
const REPLIES = { typeMapping: { 36: Buffer, 37: Array } }

class NodeRedis implements Connection {
  readonly #client: NodeRedisClient

  constructor(client: NodeRedisClient) {
    this.#client = client
  }

  isConnecting(): boolean {
    return this.#client.isOpen && !this.#client.isReady
  }

  whenReady(listener: () => void): void {
    this.#client.once('ready', listener)
  }

  call(args: readonly Argument[]): Promise<unknown> {
    return this.#client.sendCommand(args, REPLIES)
  }

  duplicate(): Connection {
    const { options } = this.#client as { options?: { socket?: { socketTimeout?: number } } }
    // A blocking read is silent until a message arrives, so a socket timeout would break healthy connections.
    const socket = options?.socket?.socketTimeout
      ? { ...options.socket, socketTimeout: undefined }
      : undefined
    const own = { disableOfflineQueue: true, commandOptions: undefined }
    const client = this.#client.duplicate(socket ? { ...own, socket } : own)
    client.on('error', () => {})
    return new NodeRedis(client)
  }

  connect(): Promise<unknown> {
    return this.#client.connect()
  }

  destroy(): void {
    if (this.#client.isOpen) this.#client.destroy()
  }
}

class IoRedis implements Connection {
  readonly #client: IoRedisClient

  constructor(client: IoRedisClient) {
    this.#client = client
  }

  /** A client in state 'wait' connects with its first command. A client in state 'end' fails with an error. */
  isConnecting(): boolean {
    return !['ready', 'wait', 'end'].includes(this.#client.status)
  }

  whenReady(listener: () => void): void {
    this.#client.once('ready', listener)
  }

  call([command, ...args]: readonly Argument[]): Promise<unknown> {
    return this.#client.callBuffer(String(command), args)
  }

  duplicate(): Connection {
    const client = this.#client.duplicate({
      lazyConnect: true,
      enableOfflineQueue: false,
      autoResendUnfulfilledCommands: false,
      retryStrategy: () => null,
      // A blocking read is silent until a message arrives, so a socket timeout would break healthy connections.
      commandTimeout: undefined,
      socketTimeout: undefined,
    })
    client.on('error', () => {})
    return new IoRedis(client)
  }

  connect(): Promise<unknown> {
    return this.#client.connect()
  }

  destroy(): void {
    this.#client.disconnect()
  }
}

/** Runs commands on the client of the user. While the client reconnects, commands wait here with a time limit. */
export class Calls {
  readonly #connection: Connection
  readonly #clock: Clock
  readonly #timeoutMs: number
  #ready: Promise<void> | null = null

  constructor(connection: Connection, clock: Clock, timeoutMs: number) {
    this.#connection = connection
    this.#clock = clock
    this.#timeoutMs = timeoutMs
  }

  /** If the client is connected, sends the command before it returns, so that commands keep their order. */
  async call(args: readonly Argument[], timeoutMs = this.#timeoutMs): Promise<unknown> {
    if (!this.#connection.isConnecting()) return within(this.#clock, timeoutMs, this.#connection.call(args))
    const deadline = this.#clock.monotonic() + timeoutMs
    await within(this.#clock, timeoutMs, this.#whenReady())
    return within(this.#clock, deadline - this.#clock.monotonic(), this.#connection.call(args))
  }

  /** All waiting commands share one listener. */
  #whenReady(): Promise<void> {
    this.#ready ??= new Promise((resolve) => {
      this.#connection.whenReady(() => {
        this.#ready = null
        resolve()
      })
    })
    return this.#ready
  }
}

/** Rejects with BrokerUnavailableError if the reply takes longer than `ms`. A later reply is ignored. */
export async function within<T>(clock: Clock, ms: number, reply: Promise<T>): Promise<T> {
  let timer: Timer | undefined
  const over = new Promise<never>((_, reject) => {
    const late = () => reject(new BrokerUnavailableError(BROKER, 'has not answered in time'))
    timer = clock.setTimer(late, ms)
  })
  try {
    return await Promise.race([reply, over])
  } finally {
    timer?.cancel()
  }
}
