import type {
  ConsumeOptions,
  Consumption,
  DeadLetterReason,
  IncomingMessage,
  OutgoingMessage,
  Transport,
} from '../../src/bus.js'

/** A transport without a broker. The test delivers messages, and reads the calls that the bus has made. */
export class PaperTransport implements Transport, Consumption {
  readonly broker = 'Paper'
  readonly sent: OutgoingMessage[] = []
  readonly acked: IncomingMessage[][] = []
  readonly released: IncomingMessage[] = []
  readonly deadLettered: { readonly message: IncomingMessage; readonly reason: DeadLetterReason }[] = []
  readonly extended: IncomingMessage[][] = []
  readonly problems: unknown[] = []
  consuming: ConsumeOptions | null = null
  closes = 0
  isDown = false
  answer: (message: OutgoingMessage) => unknown | null = () => null
  onDeadLetter: () => Promise<void> = async () => {}
  onAck: () => Promise<void> = async () => {}

  async send(messages: readonly OutgoingMessage[]): Promise<readonly (unknown | null)[]> {
    this.sent.push(...messages)
    return messages.map((message) => this.answer(message))
  }

  async check(): Promise<void> {
    if (this.isDown) throw new Error('down')
  }

  isUnavailable(error: unknown): boolean {
    return error instanceof Error && error.message === 'connection lost'
  }

  async consume(options: ConsumeOptions): Promise<Consumption> {
    if (this.isDown) throw new Error('down')
    this.consuming = options
    return this
  }

  /** Delivers a message to the consumer. */
  deliver(message: OutgoingMessage, deliveryCount = 1): IncomingMessage {
    const { contentType, attributes, body } = message
    const incoming = { contentType, attributes, body, deliveryCount }
    this.consuming?.onMessage(incoming)
    return incoming
  }

  async ack(messages: readonly IncomingMessage[]): Promise<void> {
    this.acked.push([...messages])
    await this.onAck()
  }

  async release(messages: readonly IncomingMessage[]): Promise<void> {
    this.released.push(...messages)
  }

  async deadLetter(message: IncomingMessage, reason: DeadLetterReason): Promise<void> {
    await this.onDeadLetter()
    this.deadLettered.push({ message, reason })
  }

  async extendLeases(messages: readonly IncomingMessage[]): Promise<void> {
    this.extended.push([...messages])
  }

  async stopDelivery(): Promise<void> {}

  async close(): Promise<void> {
    this.closes++
  }
}
