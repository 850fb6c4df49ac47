import type { Clock } from '../../core/clock.js'
import { BrokerUnavailableError } from '../../core/errors.js'
import { causesOf } from '../../core/unknown.js'
import { type AmqpChannel, type AmqpConnection, type AmqpDelivery, inTime, type Link } from './link.js'
import { incomingOf, resentOf, routingKeyOf } from './message.js'
import { type Parcel, RETURNED } from './publisher.js'
import { onChannel } from './topology.js'

export interface UnroutedOptions {
  readonly link: Link
  readonly exchange: string
  readonly clock: Clock
  /** No publisher is longer under way with an event than this. */
  readonly publishMs: number
  /** In their order. Answers null where a queue has it, RETURNED where none has, or what went wrong. */
  publish(parcels: readonly Parcel[]): Promise<unknown[]>
  /** Puts them at the end of the queue. Answers null, or what went wrong. */
  keep(parcels: readonly Pick<Parcel, 'body' | 'properties'>[]): Promise<unknown[]>
  onProblem(reason: unknown): void
}

/** So many are read, published and answered together: payloads may be large. */
const CHUNK = 100
/** They come at once, unless somebody else has taken them. */
const CHUNK_MS = 10_000
const FIRST_WAIT_MS = 100
const LONGEST_WAIT_MS = 5_000

const ACCESS_REFUSED = 403
const NOT_FOUND = 404
const RESOURCE_LOCKED = 405

interface Run {
  isOver: boolean
  readonly over: Promise<void>
  end(): void
}

/**
 * Publishes again what is kept in `<exchange>.unrouted`: what lies there, and once more what a publisher still had under way
 * when the queues were bound; in the background. An event leaves that queue after a confirm that another queue has it, or
 * that it is kept behind the others: a crash can make it come twice.
 */
export class Unrouted {
  readonly #options: UnroutedOptions
  readonly #queue: string
  #run: Run | null = null
  #running: Promise<void> = Promise.resolve()
  #hasTold = false

  constructor(options: UnroutedOptions) {
    this.#options = options
    this.#queue = `${options.exchange}.unrouted`
  }

  /** Where the queues are bound. A run on another connection ends. */
  start(connection: AmqpConnection): void {
    this.#run?.end()
    const run = newRun()
    this.#run = run
    this.#running = this.#running.then(() => this.#work(connection, run))
  }

  /** Resolves when it has ended; it ends after what it is publishing now. */
  async stop(): Promise<void> {
    this.#run?.end()
    await this.#running
  }

  /** Never rejects. */
  async #work(connection: AmqpConnection, run: Run): Promise<void> {
    if (!(await this.#look(connection, run))) return
    await inTime(this.#options.clock, run.over, this.#options.publishMs)
    await this.#look(connection, run)
  }

  /** Never rejects. True when another look may find something. */
  async #look(connection: AmqpConnection, run: Run): Promise<boolean> {
    for (let waitMs = FIRST_WAIT_MS; !run.isOver; waitMs = Math.min(LONGEST_WAIT_MS, waitMs * 2)) {
      try {
        await this.#passAlone(connection, run)
        return true
      } catch (error) {
        const { code } = error as { readonly code?: unknown }
        // A queue that is not there, or not for this user: nothing to do.
        if (run.isOver || code === NOT_FOUND || code === ACCESS_REFUSED) return code === NOT_FOUND
        if (code !== RESOURCE_LOCKED) this.#tell(error)
        if (code !== RESOURCE_LOCKED && !isWorthAnother(error)) return false
      }
      await inTime(this.#options.clock, run.over, waitMs)
    }
    return false
  }

  /** One after the other: what one of them holds is not seen by the next, who may have bound the queue for it. */
  async #passAlone(connection: AmqpConnection, run: Run): Promise<void> {
    const { publish } = this.#options
    await this.#answer(connection, (channel) => channel.checkQueue(this.#queue))
    // Nothing is taken out before it is clear that something can be published.
    await publish([])
    const lock = `${this.#queue}.lock`
    const isLocked = await this.#locked(connection, lock)
    try {
      if (!run.isOver) await this.#pass(connection, run)
    } finally {
      if (isLocked) await this.#answer(connection, (channel) => channel.deleteQueue(lock)).catch(() => {})
    }
  }

  /** A queue of this connection alone, so that it ends with it. False for a user who may make none. */
  async #locked(connection: AmqpConnection, lock: string): Promise<boolean> {
    const options = { durable: false, exclusive: true, arguments: {} }
    try {
      await this.#answer(connection, (channel) => channel.assertQueue(lock, options))
      return true
    } catch (error) {
      if ((error as { readonly code?: unknown }).code === ACCESS_REFUSED) return false
      throw error
    }
  }

  async #pass(connection: AmqpConnection, run: Run): Promise<void> {
    const { link, clock } = this.#options
    const { messageCount } = await this.#answer(connection, (channel) => channel.checkQueue(this.#queue))
    const channel = await link.answer(connection, connection.createChannel())
    channel.on('error', () => {})
    const homeless = new Set<string>()
    try {
      for (let left = messageCount; left > 0 && !run.isOver; ) {
        const deliveries = await this.#take(connection, channel, Math.min(left, CHUNK), run)
        const last = deliveries.at(-1)
        if (!last || run.isOver) return
        left -= deliveries.length
        await this.#move(deliveries, homeless)
        // One answer for all of them: many would get lost when the channel is closed behind them.
        channel.ack(last, true)
      }
    } finally {
      await inTime(clock, closed(channel))
    }
  }

  async #take(
    connection: AmqpConnection,
    channel: AmqpChannel,
    count: number,
    run: Run,
  ): Promise<readonly AmqpDelivery[]> {
    const { link, clock } = this.#options
    const deliveries: AmqpDelivery[] = []
    let end = () => {}
    const all = new Promise<void>((resolve) => {
      end = resolve
    })
    await link.answer(connection, channel.prefetch(count))
    const consuming = channel.consume(this.#queue, (delivery) => {
      if (delivery) deliveries.push(delivery)
      if (!delivery || deliveries.length === count) end()
    })
    const { consumerTag } = await link.answer(connection, consuming)
    await inTime(clock, Promise.race([all, run.over]), CHUNK_MS)
    // Or each answer would bring another.
    await link.answer(connection, channel.cancel(consumerTag))
    return deliveries
  }

  /** Resolves when each of them is in a queue. Where one of a type has none, those behind it need not be tried. */
  async #move(deliveries: readonly AmqpDelivery[], homeless: Set<string>): Promise<void> {
    const { exchange, publish, keep } = this.#options
    const moving = new Map<Parcel, AmqpDelivery>()
    for (const delivery of deliveries) {
      const parcel = parcelOf(exchange, delivery)
      if (parcel && !homeless.has(parcel.routingKey)) moving.set(parcel, delivery)
    }
    const parcels = [...moving.keys()]
    const answers = await publish(parcels)
    const done = new Set<AmqpDelivery>()
    for (const [at, parcel] of parcels.entries()) {
      if (answers[at] === RETURNED) homeless.add(parcel.routingKey)
      if (answers[at] === null) done.add(moving.get(parcel) as AmqpDelivery)
    }
    this.#judge(answers)
    const staying = deliveries.filter((delivery) => !done.has(delivery))
    const kept = await keep(staying.map((one) => ({ body: one.content, properties: resentOf(one) })))
    const failed = kept.find((answer) => answer !== null)
    if (failed !== undefined) throw failed
  }

  #judge(answers: readonly unknown[]): void {
    const problems = answers.filter((answer) => answer !== null && answer !== RETURNED)
    const down = problems.find((problem) => problem instanceof BrokerUnavailableError)
    if (down) throw down
    if (problems.length > 0) this.#tell(problems[0])
  }

  #answer<T>(connection: AmqpConnection, work: (channel: AmqpChannel) => Promise<T>): Promise<T> {
    return this.#options.link.answer(connection, onChannel(connection, work))
  }

  #tell(reason: unknown): void {
    if (!this.#hasTold) this.#options.onProblem(reason)
    this.#hasTold = true
  }
}

function newRun(): Run {
  let resolve = () => {}
  const over = new Promise<void>((done) => {
    resolve = done
  })
  const run: Run = {
    isOver: false,
    over,
    end: () => {
      run.isOver = true
      resolve()
    },
  }
  return run
}

/** It was put there by its queue's name: its type says where it belongs. What has none stays. */
function parcelOf(exchange: string, delivery: AmqpDelivery): Parcel | undefined {
  const { type } = incomingOf(delivery).attributes
  if (type === undefined) return undefined
  return { exchange, routingKey: routingKeyOf(type), body: delivery.content, properties: resentOf(delivery) }
}

/** A broker that is not there now may be later; one that lets this user publish nothing does not change its mind. */
function isWorthAnother(error: unknown): boolean {
  const isForbidden = causesOf(error).some((cause) => (cause as { code?: unknown }).code === ACCESS_REFUSED)
  return error instanceof BrokerUnavailableError && !isForbidden
}

/** Never rejects. */
async function closed(channel: AmqpChannel): Promise<void> {
  try {
    await channel.close()
  } catch {
    // It is closed already, and holds nothing.
  }
}
