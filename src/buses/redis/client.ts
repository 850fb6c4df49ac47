import type { Clock, Timer } from '../../core/clock.js'
import { BrokerUnavailableError, InvalidSettingError } from '../../core/errors.js'

export const BROKER = 'Redis'

/** The methods of node-redis (5 or newer) that are called. */
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

/** The methods of ioredis (5 or newer) that are called. */
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

/** One connection, the same for both libraries. Texts in answers are Buffers. */
export interface Connection {
  /** Not connected at the moment: a command would wait inside of the client, perhaps for ever. */
  isConnecting(): boolean
  whenReady(listener: () => void): void
  call(args: readonly Argument[]): Promise<unknown>
  /** Another one with the same settings, not connected, which fails at once instead of waiting for better times. */
  duplicate(): Connection
  connect(): Promise<unknown>
  /** At once; commands under way fail. */
  destroy(): void
}

export function connectionOf(client: RedisClient): Connection {
  const given = client as
    | Partial<NodeRedisClient & IoRedisClient & Record<string, unknown>>
    | null
    | undefined
  // Clusters and pools spread commands over several connections; a cluster also wants to know each command's key.
  const isMany = given?.isCluster === true || typeof given?.execute === 'function' || 'slots' in (given ?? {})
  if (!isMany && typeof given?.callBuffer === 'function') return new IoRedis(client as IoRedisClient)
  if (!isMany && typeof given?.sendCommand === 'function' && 'isReady' in given)
    return new NodeRedis(client as NodeRedisClient)
  throw new InvalidSettingError(
    'client',
    'must be one client of the package redis or ioredis, not a cluster or a pool',
  )
}

/** RESP type bytes: texts as Buffers, and the maps of RESP3 as flat lists. */
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
    // A read that waits for messages is no sign of a dead connection.
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

  /** One that waits for its first command ('wait') connects by it; one that has ended says so by an error. */
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
      // A read that waits for messages is no sign of a dead connection.
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

/** Commands on the user's client. While that is not connected they are not handed to it, but wait here, and not for ever. */
export class Calls {
  readonly #connection: Connection
  readonly #clock: Clock
  readonly #patienceMs: number
  #ready: Promise<void> | null = null

  constructor(connection: Connection, clock: Clock, patienceMs: number) {
    this.#connection = connection
    this.#clock = clock
    this.#patienceMs = patienceMs
  }

  /** Sent before it returns when the client is connected, so that calls keep their order. */
  async call(args: readonly Argument[], patienceMs = this.#patienceMs): Promise<unknown> {
    if (!this.#connection.isConnecting()) return within(this.#clock, patienceMs, this.#connection.call(args))
    const lateAt = this.#clock.monotonic() + patienceMs
    await within(this.#clock, patienceMs, this.#whenReady())
    return within(this.#clock, lateAt - this.#clock.monotonic(), this.#connection.call(args))
  }

  /** One listener for all who wait. */
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

/** Rejects when the answer takes longer than this; what comes later is nobody's concern. */
export async function within<T>(clock: Clock, ms: number, answer: Promise<T>): Promise<T> {
  let timer: Timer | undefined
  const over = new Promise<never>((_, reject) => {
    const late = () => reject(new BrokerUnavailableError(BROKER, 'has not answered in time'))
    timer = clock.setTimer(late, ms)
  })
  try {
    return await Promise.race([answer, over])
  } finally {
    timer?.cancel()
  }
}

/** None of these is about a single message. */
const UNAVAILABLE = new Set([
  ...['LOADING', 'READONLY', 'MISCONF', 'OOM', 'CLUSTERDOWN', 'MASTERDOWN', 'NOREPLICAS', 'BUSY', 'TRYAGAIN'],
  ...['NOAUTH', 'NOPERM', 'WRONGPASS', 'WRONGTYPE', 'NOGROUP', 'UNKILLABLE'],
])

/** An answer of Redis begins with its code in capitals; whatever else a client throws is about the connection. */
export function isUnavailable(error: unknown): boolean {
  if (!(error instanceof Error) || error instanceof TypeError || error instanceof RangeError) return false
  const code = codeOf(error)
  return code === undefined || UNAVAILABLE.has(code)
}

export function codeOf(error: unknown): string | undefined {
  return error instanceof Error ? /^-?([A-Z][A-Z0-9_]+)(?: |$)/.exec(error.message)?.[1] : undefined
}
