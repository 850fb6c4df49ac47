/** An event on its way to a broker, as CloudEvents has it in binary mode. */
export interface OutgoingMessage {
  /** The event's id: what a broker that can tell duplicates tells them by. */
  readonly id: string
  /** The event's type: what a broker routes by. */
  readonly type: string
  /** The ordering key. Messages of one key must come out in the order in which they went in. */
  readonly key: string | undefined
  readonly contentType: string
  /** CloudEvents attributes by their bare names (`specversion`, `id`, `type`, …); the payload is the body alone. */
  readonly attributes: Readonly<Record<string, string>>
  readonly body: Uint8Array
}

/** A message as a broker hands it out. It is answered exactly once: by `ack`, `release` or `bury`. */
export interface IncomingMessage {
  readonly contentType: string
  /** By their bare names; what a message of another producer lacks is absent. */
  readonly attributes: Readonly<Record<string, string>>
  readonly body: Uint8Array
  /** How often the broker has handed it to this group, this time included; 1 where it does not count. */
  readonly deliveries: number
}

/** Why a message is given up. No payload is in it. */
export interface Burial {
  readonly group: string
  /** The handlers that failed; empty when the message could not be read. */
  readonly handlers: readonly string[]
  readonly attempts: number
  readonly error: string
}

/** What a broker must be able to do. One file for each of them in `buses/`; the rest is the same for all. */
export interface Transport {
  /** The broker's name in errors and logs. */
  readonly broker: string

  /**
   * Sends all of them in this order, without waiting for one before the next. Resolves when the broker has answered them
   * all: for each null when it has confirmed it, or what went wrong. An answer that never comes is the caller's concern.
   */
  send(messages: readonly OutgoingMessage[]): Promise<readonly (unknown | null)[]>

  /** A round trip which shows that the broker takes messages; rejects while it does not. Creates what is missing. */
  check(): Promise<void>

  /** It is the broker or the way to it that failed, and not this message. When in doubt, false: then `check` decides. */
  isUnavailable(error: unknown): boolean

  /** Creates what the group needs where it is missing, and hands out messages until `pause`. */
  consume(options: ConsumeOptions): Promise<Consumption>

  /** Ends what the transport has opened itself, and nothing else: the client is the user's. */
  close(): Promise<void>
}

export interface ConsumeOptions {
  readonly group: string
  /** Types and patterns (`order.*`, `*`) that somebody handles. For brokers that can filter; others may hand out all. */
  readonly types: readonly string[]
  /** So many may be unanswered at a time. */
  readonly maxUnanswered: number
  /** What a consumer holds that has given no sign of life for so long goes to another one of its group. */
  readonly takeoverMs: number
  onMessage(message: IncomingMessage): void
  /** They are not this consumer's any more, and will be handed out again: those that have not begun must not begin. */
  onLost(messages: Iterable<IncomingMessage>): void
  /** Something failed that the transport goes on trying by itself, for example to connect. */
  onProblem(error: unknown): void
}

/** Answers are for messages of this consumption, and come in batches. An answer that fails leads to a redelivery. */
export interface Consumption {
  ack(messages: readonly IncomingMessage[]): Promise<void>
  /** Back to the group, at once where the broker can. */
  release(messages: readonly IncomingMessage[]): Promise<void>
  /** To the dead-letter destination of the group; acknowledged only when that is confirmed. */
  bury(message: IncomingMessage, burial: Burial): Promise<void>
  /** They are still being worked on. Called three times per `takeoverMs`; absent where the connection itself says so. */
  extend?(messages: readonly IncomingMessage[]): Promise<void>
  /** When it has resolved nothing more is handed out. Answers go on. */
  pause(): Promise<void>
  /** After the last answer. */
  close(): Promise<void>
}
