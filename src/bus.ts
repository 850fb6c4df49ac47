import type { EventDefinition } from './core/define-event.js'
import type { PublishableEvent } from './core/domain-event.js'
import type { EventEnvelope } from './core/envelope.js'
import type { EventId } from './core/event-id.js'

// ── ports: what an application uses ──────────────────────────────────────────────────────────────────────────

export interface PublishOptions {
  /** Minimum time in milliseconds between the publish and the first delivery. */
  readonly delayMs?: number
  /** Earliest time of the first delivery. */
  readonly deliverAt?: Date
  /** Behavior for an event id that already exists. `error` (default) throws DuplicateEventError. */
  readonly onDuplicate?: 'error' | 'ignore'
}

/** Publishes events. Use cases depend on this port: on the outbox in production, on an InMemoryEventBus in unit tests. */
export interface EventPublisher {
  publish(event: PublishableEvent, options?: PublishOptions): Promise<EventId>
  /** Publishes several events, atomically if the implementation supports that. */
  publishAll(events: readonly PublishableEvent[], options?: PublishOptions): Promise<EventId[]>
}

export interface EventHandler<T = unknown> {
  readonly name: string
  handle(event: EventEnvelope<T>): unknown
}

export interface EventSubscriber {
  subscribe<T>(type: string | EventDefinition<T>, handler: EventHandler<T>): void
  subscribeAll(types: readonly (string | EventDefinition)[], handler: EventHandler): void
}

export interface EventBus extends EventPublisher, EventSubscriber {}

/** A bus that reports a result per event. The relay publishes to this port. */
export interface ConfirmingPublisher {
  /**
   * Publishes the events in the given order, without waiting for one confirmation before the next event. Resolves with one
   * answer per event: null if the broker confirmed the event, a BrokerUnavailableError if the broker or the connection
   * failed, and any other value if the broker refused this event. Never rejects.
   */
  send(events: readonly EventEnvelope[]): Promise<readonly (unknown | null)[]>
  /** Resolves if the broker accepts messages, and rejects if it does not. */
  check(): Promise<void>
}

// ── transport: what a broker provides ────────────────────────────────────────────────────────────────────────

/** An event for a broker, in the binary mode of CloudEvents. */
export interface OutgoingMessage {
  /** Id of the event. A broker that drops duplicates compares this id. */
  readonly id: string
  /** Type of the event. A broker that routes messages routes by this type. */
  readonly type: string
  /** Ordering key. The broker must deliver messages with the same key in the order in which they were sent. */
  readonly key: string | undefined
  /** Media type of the body. */
  readonly contentType: string
  /** CloudEvents attributes by their names without a prefix: `specversion`, `id`, `source`, `type`, … */
  readonly attributes: Readonly<Record<string, string>>
  /** The payload and nothing else. */
  readonly body: Uint8Array
}

/**
 * A message that a broker has delivered. The consumer settles each message at most once, with `ack`, `release` or
 * `deadLetter`. The consumer passes back the same object, so a transport may use a class with more fields.
 */
export interface IncomingMessage {
  /** Media type of the body. Use `application/json` if the message has none. */
  readonly contentType: string
  /** CloudEvents attributes by their names without a prefix. Messages of other producers may lack any of them. */
  readonly attributes: Readonly<Record<string, string>>
  /** The payload and nothing else. */
  readonly body: Uint8Array
  /** Number of deliveries of this message to the group, including this delivery. Always 1 if the broker does not count. */
  readonly deliveryCount: number
}

/** Reason why a message was dead-lettered. Never contains the payload. */
export interface DeadLetterReason {
  /** Group whose consumer dead-lettered the message. */
  readonly group: string
  /** Names of the handlers that failed. Empty if the message could not be read. */
  readonly handlers: readonly string[]
  /** Number of failed attempts in this consumer. */
  readonly attempts: number
  /** Error texts after redaction, at most 4,000 characters. */
  readonly error: string
}

/**
 * Connects a BrokerBus to a broker. The bus converts events, limits waiting times, runs and retries handlers, keeps the
 * order per key and decides about dead letters. The transport moves messages. See docs/writing-a-bus.md.
 */
export interface Transport {
  /** Name of the broker in errors, log lines and spans. */
  readonly broker: string

  /**
   * Sends up to 1,000 messages in the given order, without waiting for one confirmation before the next message. Resolves
   * with one answer per message: null if the broker confirmed the message, otherwise the error. If the result is unclear,
   * answer with the error: a duplicate is allowed, a lost message is not.
   *
   * The bus may call `send` again before an earlier call has resolved. Messages of the later call must not overtake those
   * of the earlier call. The bus stops waiting after `confirmTimeoutMs`. If `send` rejects while `check` succeeds, the bus
   * sends smaller and smaller parts until it has found the message that the client cannot send.
   */
  send(messages: readonly OutgoingMessage[]): Promise<readonly (unknown | null)[]>

  /**
   * Verifies with a round trip that the broker accepts messages, and rejects if it does not. Creates a missing stream,
   * topic or exchange. The bus stops waiting after `confirmTimeoutMs`.
   */
  check(): Promise<void>

  /**
   * Returns whether an error of `send` was caused by the broker or by the connection, not by the message. Return false if
   * the error is unknown: the bus then calls `check` to decide. A relay waits for an unavailable broker without counting
   * an attempt. It counts an attempt for a message that the broker refused.
   */
  isUnavailable(error: unknown): boolean

  /**
   * Creates what the group needs, then delivers messages until `stopDelivery`. May call `onMessage` before it resolves.
   * Rejects if the broker cannot be used, and leaves nothing open in that case. After it has resolved, the consumption
   * reconnects by itself and reports each failure to `onError`.
   */
  consume(options: ConsumeOptions): Promise<Consumption>

  /**
   * Closes what the transport has opened, but not the client of the user. The bus closes consumptions first, and stops
   * waiting after 2 seconds. The bus can be used again afterwards: open connections again on the next call.
   */
  close(): Promise<void>
}

/** Settings and callbacks of one consumption. The callbacks never throw. */
export interface ConsumeOptions {
  /** Consumers with the same group share the messages. Each group receives every message. */
  readonly group: string
  /** Subscribed types and patterns (`order.*`, `*`). A broker may filter by them. The consumer acknowledges other messages. */
  readonly types: readonly string[]
  /** Maximum number of delivered messages that are neither settled nor lost. */
  readonly maxUnacked: number
  /** Time in milliseconds after which the broker gives the messages of a silent consumer to another consumer of the group. */
  readonly takeoverMs: number
  /** Delivers a message. Messages with the same ordering key must be delivered in order. */
  onMessage(message: IncomingMessage): void
  /**
   * Reports unsettled messages that another consumer may have received, for example after a lost connection. The consumer
   * does not start their handlers any more and does not settle them. Report a message before the broker delivers it again.
   */
  onLeaseLost(messages: Iterable<IncomingMessage>): void
  /** Reports a failure that the transport handles by itself, for example before it reconnects. The bus logs a warning. */
  onError(error: unknown): void
}

/**
 * The messages that one consumer receives. All methods must ignore messages whose lease was lost. If settling a message
 * fails, the broker delivers the message again.
 */
export interface Consumption {
  /** Acknowledges handled messages. Rejects if the broker did not accept the acknowledgement. */
  ack(messages: readonly IncomingMessage[]): Promise<void>

  /**
   * Returns messages to the group without waiting for `takeoverMs`. If the broker counts deliveries, a released delivery
   * should not count.
   */
  release(messages: readonly IncomingMessage[]): Promise<void>

  /**
   * Stores the message and the reason at the dead-letter destination of the group. Acknowledges the message only after the
   * broker has confirmed the copy. If it rejects, the consumer calls it again after 100 ms to 5 s, until it succeeds, the
   * lease is lost or the bus stops.
   */
  deadLetter(message: IncomingMessage, reason: DeadLetterReason): Promise<void>

  /**
   * Extends the leases of unsettled messages to `takeoverMs` from now. The consumer calls it every `takeoverMs` / 3. Omit
   * this method if an open connection keeps the messages.
   */
  extendLeases?(messages: readonly IncomingMessage[]): Promise<void>

  /**
   * Stops the delivery of messages. `onMessage` must not be called after this has resolved. Messages that were delivered
   * before can still be settled. The bus stops waiting after 2 seconds.
   */
  stopDelivery(): Promise<void>

  /**
   * Closes the consumption after the last message was settled, and returns unsettled messages to the group. Must be safe to
   * call twice. The bus stops waiting after 2 seconds.
   */
  close(): Promise<void>
}
