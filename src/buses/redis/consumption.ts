import { randomBytes } from 'node:crypto'
import type { ConsumeOptions, Consumption, DeadLetterReason, IncomingMessage } from '../../bus.js'
import { atMost, type Clock, type Timer } from '../../core/clock.js'
import { type Argument, type Calls, type Connection, within } from './client.js'
import { codeOf } from './errors.js'
import { deadFieldsOf, type Fields, RedisMessage } from './message.js'
import { CONSUMER_PREFIX, CREATE_GROUP, DEAD_LETTER, EXTEND_LEASES, LEAVE, RELEASE, TAKE } from './scripts.js'

export interface RedisConsumptionOptions extends ConsumeOptions {
  readonly stream: string
  readonly clock: Clock
  /** Commands on the client of the user. */
  readonly calls: Calls
  /** Creates the connection for reading. The connection is not shared and not connected yet. */
  duplicate(): Connection
  /** Maximum time in milliseconds that a command may take, without the time that it blocks. */
  readonly commandTimeoutMs: number
  onClose(): void
}

/** Interval in milliseconds at which the consumer looks for released and abandoned messages. */
const TAKE_INTERVAL_MS = 1_000
/** Idle time in milliseconds after which a consumer without messages is deleted. A running consumer is idle for 1 second. */
const DEAD_AFTER_MS = String(3_600_000)
const FIRST_DELAY_MS = 100
const MAX_DELAY_MS = 2_000
/** Maximum time in milliseconds that a stop waits for a command. */
const STOP_MS = 1_000

/**
 * Reads messages of a group. Redis keeps a delivered message with its consumer until `takeoverMs` have passed without a
 * lease extension, even if the connection is lost. After a reconnect, the consumer asks again for messages that it did not
 * receive.
 */
export class RedisConsumption implements Consumption {
  readonly #options: RedisConsumptionOptions
  readonly #consumer = CONSUMER_PREFIX + randomBytes(8).toString('hex')
  readonly #leased = new Map<string, RedisMessage>()
  /** Entries of handled messages whose acknowledgement is being sent. */
  readonly #acking = new Set<string>()
  /** Entries of handled messages whose acknowledgement failed and will be retried. */
  readonly #ackRetries = new Set<string>()
  #reader: Connection | null = null
  #readerId = ''
  #nextTakeAt = 0
  #delayMs = FIRST_DELAY_MS
  #isDeliveryStopping = false
  /** Whether the delivery has stopped. Replies that arrive later are ignored. */
  #isDeliveryStopped = false
  #isClosed = false
  #running: Promise<void> = Promise.resolve()
  #isConnecting = false
  /** Ends the wait of the loop for free capacity. */
  #onCapacityFreed: () => void = () => {}
  /** Ends the delay before the next connection attempt. */
  #endDelay: () => void = () => {}
  #leaseTimer: Timer | null = null

  constructor(options: RedisConsumptionOptions) {
    this.#options = options
  }

  /** Rejects and leaves nothing open if the broker cannot be used. */
  async start(): Promise<void> {
    try {
      await this.#options.calls.call(this.#script(CREATE_GROUP, [DEAD_AFTER_MS]))
      await this.#connect()
    } catch (error) {
      this.#disconnect()
      throw error
    }
    this.#expireLeasesLater()
    this.#running = this.#run()
  }

  async ack(messages: readonly IncomingMessage[]): Promise<void> {
    const entries = this.#untrack(messages).map(({ entryId }) => entryId)
    for (const entry of entries) this.#acking.add(entry)
    try {
      await this.#callOnClient(['XACK', this.#options.stream, this.#options.group, ...entries])
    } catch (error) {
      for (const entry of entries) this.#ackRetries.add(entry)
      this.#nextTakeAt = 0
      throw error
    } finally {
      for (const entry of entries) this.#acking.delete(entry)
    }
  }

  async release(messages: readonly IncomingMessage[]): Promise<void> {
    const entries = this.#untrack(messages).map(({ entryId }) => entryId)
    await this.#callOnClient(this.#script(RELEASE, [this.#consumer, ...entries]))
  }

  async deadLetter(message: IncomingMessage, reason: DeadLetterReason): Promise<void> {
    const leased = message as RedisMessage
    const { stream, group } = this.#options
    const args = [group, this.#consumer, leased.entryId, ...deadFieldsOf(leased, reason)]
    await this.#callOnClient(['EVAL', DEAD_LETTER, '2', stream, `${stream}.${group}.dead`, ...args])
    this.#untrack([message])
  }

  async extendLeases(messages: readonly IncomingMessage[]): Promise<void> {
    const askedAt = this.#options.clock.monotonic()
    const leased = (messages as readonly RedisMessage[]).filter((message) => this.#isLeased(message))
    if (leased.length === 0) return
    const entries = leased.map(({ entryId }) => entryId)
    const reply = await this.#callOnClient(this.#script(EXTEND_LEASES, [this.#consumer, ...entries]))
    const lost = new Set((reply as Buffer[]).map(String))
    for (const message of leased) if (!lost.has(message.entryId)) message.leasedAt = askedAt
    // A message that was settled during the call is not pending any more, but its lease was not lost.
    this.#loseLeases(leased.filter((message) => lost.has(message.entryId) && this.#isLeased(message)))
  }

  async stopDelivery(): Promise<void> {
    if (this.#isDeliveryStopped) return
    this.#isDeliveryStopping = true
    this.#onCapacityFreed()
    this.#endDelay()
    if (this.#isConnecting) this.#disconnect()
    // Ends a blocking read. Without the permission for CLIENT UNBLOCK, the read ends by itself after at most a second.
    if (this.#reader && this.#readerId !== '')
      this.#callOnClient(['CLIENT', 'UNBLOCK', this.#readerId]).catch(() => {})
    await atMost(this.#options.clock, TAKE_INTERVAL_MS + STOP_MS, this.#running)
    this.#isDeliveryStopped = true
    this.#disconnect()
  }

  async close(): Promise<void> {
    await this.stopDelivery()
    if (this.#isClosed) return
    this.#isClosed = true
    this.#leaseTimer?.cancel()
    this.#options.onClose()
    // Also releases messages that arrived during the stop. If the call fails, other consumers take them after `takeoverMs`.
    await this.#callOnClient(this.#script(LEAVE, [this.#consumer, ...this.#ackRetries])).catch(() => {})
  }

  // ── reading: one loop that runs one command at a time ────────────────────────────────────────────────────

  async #run(): Promise<void> {
    while (!this.#isDeliveryStopping) {
      try {
        await this.#runOnce(this.#reader ?? (await this.#connect()))
        this.#delayMs = FIRST_DELAY_MS
      } catch (error) {
        if (!this.#isDeliveryStopping) await this.#recover(error)
      }
    }
  }

  async #runOnce(reader: Connection): Promise<void> {
    if (this.#isDeliveryStopping) return
    const capacity = this.#options.maxUnacked - this.#leased.size
    if (capacity <= 0) await this.#waitForCapacity()
    else if (this.#options.clock.monotonic() >= this.#nextTakeAt) await this.#take(reader, capacity)
    else await this.#read(reader, capacity)
  }

  /** Reads new messages of the stream. */
  async #read(reader: Connection, capacity: number): Promise<void> {
    const { group, stream, clock } = this.#options
    const askedAt = clock.monotonic()
    const blockMs = Math.max(1, Math.ceil(this.#nextTakeAt - askedAt))
    const options = ['GROUP', group, this.#consumer, 'COUNT', String(capacity), 'BLOCK', String(blockMs)]
    const reply = await this.#callOn(reader, ['XREADGROUP', ...options, 'STREAMS', stream, '>'], blockMs)
    for (const [id, fields] of entriesOf(reply)) {
      this.#deliver(new RedisMessage(String(id), fields, 1, askedAt))
    }
  }

  /** Takes messages whose delivery a broken connection interrupted, and messages that others have released or abandoned. */
  async #take(reader: Connection, capacity: number): Promise<void> {
    const { group, stream, clock, takeoverMs, maxUnacked } = this.#options
    const retries = [...this.#ackRetries]
    if (retries.length > 0) await this.#callOn(reader, ['XACK', stream, group, ...retries])
    for (const entry of retries) this.#ackRetries.delete(entry)
    const askedAt = clock.monotonic()
    const tracked = [...this.#leased.keys(), ...this.#acking, ...this.#ackRetries]
    // The window is large enough to contain entries of other consumers behind all entries of this consumer.
    const window = String(maxUnacked + tracked.length + capacity)
    const args = [this.#consumer, String(takeoverMs), String(capacity), window, ...tracked]
    const taken = (await this.#callOn(reader, this.#script(TAKE, args))) as [Buffer, number, Fields][]
    for (const [id, deliveryCount, fields] of taken) {
      this.#deliver(new RedisMessage(String(id), fields, Number(deliveryCount), askedAt))
    }
    // If the reply was full, more messages may be available at once.
    if (taken.length < capacity) this.#nextTakeAt = askedAt + Math.min(TAKE_INTERVAL_MS, takeoverMs / 2)
  }

  #deliver(message: RedisMessage): void {
    const { entryId } = message
    // A group that was deleted and created again delivers handled messages once more.
    if (this.#isDeliveryStopped || this.#ackRetries.has(entryId)) return
    const former = this.#leased.get(entryId)
    if (former) this.#options.onLeaseLost([former])
    this.#leased.set(entryId, message)
    this.#options.onMessage(message)
  }

  async #recover(error: unknown): Promise<void> {
    const { onError } = this.#options
    onError(error)
    this.#nextTakeAt = 0
    try {
      // The stream was deleted, or a replica without the group took over.
      if (this.#reader && String(error).includes('NOGROUP')) {
        await this.#callOn(this.#reader, this.#script(CREATE_GROUP, [DEAD_AFTER_MS]))
        return
      }
    } catch (failure) {
      onError(failure)
    }
    this.#disconnect()
    if (!this.#isDeliveryStopping) await this.#delay()
    this.#delayMs = Math.min(MAX_DELAY_MS, this.#delayMs * 2)
  }

  // ── connections and commands ─────────────────────────────────────────────────────────────────────────────

  async #connect(): Promise<Connection> {
    const { duplicate, clock, commandTimeoutMs } = this.#options
    const reader = duplicate()
    this.#reader = reader
    this.#isConnecting = true
    await within(clock, commandTimeoutMs, reader.connect()).finally(() => {
      this.#isConnecting = false
    })
    this.#readerId = await this.#callOn(reader, ['CLIENT', 'ID']).then(String, (error) => {
      if (codeOf(error) === undefined) throw error
      return ''
    })
    return reader
  }

  #disconnect(): void {
    this.#reader?.destroy()
    this.#reader = null
    this.#readerId = ''
  }

  #callOn(reader: Connection, args: readonly Argument[], blockMs = 0): Promise<unknown> {
    return within(this.#options.clock, blockMs + this.#options.commandTimeoutMs, reader.call(args))
  }

  #callOnClient(args: readonly Argument[]): Promise<unknown> {
    const { calls, commandTimeoutMs } = this.#options
    const timeoutMs = this.#isDeliveryStopping ? Math.min(STOP_MS, commandTimeoutMs) : commandTimeoutMs
    return calls.call(args, timeoutMs)
  }

  #script(script: string, args: readonly Argument[]): Argument[] {
    return ['EVAL', script, '1', this.#options.stream, this.#options.group, ...args]
  }

  // ── leases ───────────────────────────────────────────────────────────────────────────────────────────────

  #isLeased(message: RedisMessage): boolean {
    return this.#leased.get(message.entryId) === message
  }

  #untrack(messages: readonly IncomingMessage[]): readonly RedisMessage[] {
    const given = messages as readonly RedisMessage[]
    for (const message of given) {
      if (this.#isLeased(message)) this.#leased.delete(message.entryId)
    }
    this.#onCapacityFreed()
    return given
  }

  #loseLeases(messages: readonly RedisMessage[]): void {
    if (messages.length === 0) return
    this.#untrack(messages)
    this.#options.onLeaseLost(messages)
  }

  /**
   * Reports leases as lost shortly before they expire. Other consumers take these messages even if this process is cut off
   * from Redis, so their handlers must not start here.
   */
  #expireLeasesLater(): void {
    const { clock, takeoverMs } = this.#options
    this.#leaseTimer = clock.setTimer(() => {
      const latest = clock.monotonic() - takeoverMs * 0.75
      this.#loseLeases([...this.#leased.values()].filter(({ leasedAt }) => leasedAt <= latest))
      this.#expireLeasesLater()
    }, takeoverMs / 8)
    this.#leaseTimer.unref?.()
  }

  #delay(): Promise<void> {
    return new Promise((resolve) => {
      const timer = this.#options.clock.setTimer(resolve, this.#delayMs)
      this.#endDelay = () => {
        timer.cancel()
        resolve()
      }
    })
  }

  #waitForCapacity(): Promise<void> {
    return new Promise((resolve) => {
      this.#onCapacityFreed = resolve
    })
  }
}

/** Returns the entries of the only stream in the reply. RESP2 sends a list of pairs, RESP3 a map, and both null if empty. */
function entriesOf(reply: unknown): readonly (readonly [Buffer, Fields])[] {
  if (!Array.isArray(reply) || reply.length === 0) return []
  const [first, second] = reply
  return Array.isArray(first) ? first[1] : second
}
