import type { BusOptions } from '../../bus/settings.js'
import type { EventBus } from '../../bus.js'
import type { SuiteOptions } from '../themes.js'

/** A bus as the suite uses it: one without a broker has nothing to start or stop. */
export interface TestedBus extends EventBus {
  start?(): Promise<void>
  stop?(): Promise<void>
}

/** What lies at the dead-letter destination of a group, read by the means of the broker's own client. */
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
 * A broker with a destination (stream, exchange, topic) of this test's own. Made before each test and handed back at its
 * end; the broker itself may live longer, and must serve again after a test has killed it.
 */
export interface BusWorld {
  /** Takes events of 1 MiB: raise the broker's limits where they are lower. A new bus on the destination, on a client and a connection of its own. The suite stops it; the world closes clients. */
  createBus(options: BusOptions): Promise<TestedBus>
  dispose(): Promise<void>

  /** Consumers of one group share the messages, different groups each get all. Absent in a bus without a broker. */
  readonly groups?: true | undefined
  /** Several consumers of a group work at the same time, and none of them only stands by. */
  readonly shares?: true | undefined
  /** The broker itself drops what it has had before, by the event's id. */
  readonly deduplicates?: true | undefined
  /** The order within a key holds also when several consumers share a group. */
  readonly orderAcrossConsumers?: true | undefined
  /** The broker counts how often it has handed a message out. */
  readonly countsDeliveries?: true | undefined

  readonly deadLetters?: ((group: string) => Promise<readonly DeadLetteredMessage[]>) | undefined
  /** Puts a message there as somebody else might: with these CloudEvents attributes, or with none at all. */
  readonly publishForeign?:
    | ((body: string, attributes: Readonly<Record<string, string>>) => Promise<void>)
    | undefined
  /** SIGKILL; resolves when the broker is dead. */
  readonly kill?: (() => Promise<void>) | undefined
  /** Starts it again, on the same port and data; resolves when it serves. */
  readonly restart?: (() => Promise<void>) | undefined
  /** Resets the connections of all buses of this world once; their clients may connect again at once. */
  readonly cut?: (() => Promise<void>) | undefined
  /** Whatever the buses of this world send is swallowed, and nothing comes back, until the returned function is called. */
  readonly freeze?: (() => Promise<() => Promise<void>>) | undefined
  /** As if the process of this bus had been killed: its connections end without a goodbye, and it never comes back. */
  readonly vanish?: ((bus: TestedBus) => Promise<void>) | undefined
}

export interface BusConformanceOptions extends SuiteOptions {
  /** Called before each test. */
  createWorld(): Promise<BusWorld>
  /** How long to wait for what must happen sooner or later, before a test fails. Default 20,000. */
  readonly patienceMs?: number | undefined
}

/** What a test may need of the world. Nothing else decides what is skipped. */
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
