import type { EventHandler, IncomingMessage } from '../bus.js'
import type { EventEnvelope } from '../core/envelope.js'

/** A message that the consumer has received and not settled yet. */
export class UnackedMessage {
  readonly message: IncomingMessage
  readonly event: EventEnvelope
  readonly handlers: readonly EventHandler[]
  /** Number of failed attempts in this consumer. */
  attempts = 0
  /** Names of the handlers that have succeeded. They are not called again for this message. */
  succeeded: Set<string> = new Set()
  /** Whether another consumer may have received the message. Such a message is neither started nor settled. */
  isLeaseLost = false
  isSettled = false
  /** Name of the handler that is running, or null. */
  running: string | null = null
  /** Resolves when the consumer has finished its work on the message. Never rejects. */
  ended: Promise<void> = Promise.resolve()

  constructor(message: IncomingMessage, event: EventEnvelope, handlers: readonly EventHandler[]) {
    this.message = message
    this.event = event
    this.handlers = handlers
  }

  /** Keys for sequential handling. Deliveries of the same event share a key, and so do events with the same ordering key. */
  get chainKeys(): readonly string[] {
    const { orderingKey } = this.event
    return orderingKey === undefined ? [this.#identity] : [this.#identity, `key ${orderingKey}`]
  }

  /** Takes over the succeeded handlers of an earlier delivery whose lease was lost while its handlers were running. */
  inherit(earlier: UnackedMessage): void {
    if (earlier.isLeaseLost && earlier.#identity === this.#identity) this.succeeded = earlier.succeeded
  }

  /** Event ids are unique within their source. */
  get #identity(): string {
    return `event ${this.event.eventId} of ${this.message.attributes.source}`
  }
}
