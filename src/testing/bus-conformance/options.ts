import type { BusOptions } from '../../bus/settings.js'
import type { EventBus } from '../../bus.js'
import type { SuiteOptions } from '../themes.js'

/** A bus under test. A bus without a broker has no start and stop. */
export interface TestedBus extends EventBus {
  start?(): Promise<void>
  stop?(): Promise<void>
}

/** A message at the dead-letter destination of a group, read with the client of the broker. */
export interface DeadLetteredMessage {
  readonly eventId: string | undefined
  readonly eventType: string | undefined
  readonly payload: string
  readonly group: string
  readonly handlers: string
  readonly attempts: number
  readonly error: string
}

/**
 * A broker with a new destination (stream, exchange, topic) for one test. The suite creates a world before each test and
 * disposes it afterwards. The broker may be shared between worlds, and must work again after a test has killed it.
 */
export interface BusWorld {
  /**
   * Creates a bus on the destination, with its own client and connection. The suite stops the bus, and the world closes the
   * client. The broker must accept events of 1 MiB, so raise a lower limit.
   */
  createBus(options: BusOptions): Promise<TestedBus>
  dispose(): Promise<void>

  /** Present if the consumers of a group share the messages and each group receives all messages. Absent without a broker. */
  readonly groups?: true | undefined
  /** Present if several consumers of a group receive messages at the same time. */
  readonly shares?: true | undefined
  /** Present if the broker drops messages whose event id it has already stored. */
  readonly deduplicates?: true | undefined
  /** Present if the order per key holds across the consumers of a group. */
  readonly orderAcrossConsumers?: true | undefined
  /** Present if the broker counts the deliveries of a message. */
  readonly countsDeliveries?: true | undefined

  /** Reads the dead letters of a group. */
  readonly deadLetters?: ((group: string) => Promise<readonly DeadLetteredMessage[]>) | undefined
  /** Sends a message of another producer, with the given CloudEvents attributes. */
  readonly publishForeign?:
    | ((body: string, attributes: Readonly<Record<string, string>>) => Promise<void>)
    | undefined
  /** Kills the broker with SIGKILL. Resolves when its process has ended. */
  readonly kill?: (() => Promise<void>) | undefined
  /** Starts the killed broker again on the same port and data. Resolves when it accepts connections. */
  readonly restart?: (() => Promise<void>) | undefined
  /** Resets the connections of all buses of this world once. Their clients may connect again at once. */
  readonly cut?: (() => Promise<void>) | undefined
  /** Drops all data between the buses of this world and the broker until the returned function is called. */
  readonly freeze?: (() => Promise<() => Promise<void>>) | undefined
  /** Ends the connections of a bus for good and without an orderly close, like the death of its process. */
  readonly vanish?: ((bus: TestedBus) => Promise<void>) | undefined
}

export interface BusConformanceOptions extends SuiteOptions {
  /** Called before each test. */
  createWorld(): Promise<BusWorld>
  /** Time in milliseconds after which a test fails if an expected condition is not met. Default 20,000. */
  readonly timeoutMs?: number | undefined
}

/** Members of the world that a test may need. A test is skipped if a needed member is missing. */
export type BusNeed =
  | 'groups'
  | 'shares'
  | 'deduplicates'
  | 'orderAcrossConsumers'
  | 'countsDeliveries'
  | 'deadLetters'
  | 'publishForeign'
  | 'kill'
  | 'cut'
  | 'freeze'
  | 'vanish'
