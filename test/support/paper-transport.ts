import type {
  Burial,
  ConsumeOptions,
  Consumption,
  IncomingMessage,
  OutgoingMessage,
  Transport,
} from '../../src/bus/transport.js'

/** A transport on paper: a test plays the broker, and sees what it is told. */
export class PaperTransport implements Transport, Consumption {
  readonly broker = 'Paper'
  readonly sent: OutgoingMessage[] = []
  readonly acked: IncomingMessage[][] = []
  readonly released: IncomingMessage[] = []
  readonly buried: { readonly message: IncomingMessage; readonly burial: Burial }[] = []
  readonly extended: IncomingMessage[][] = []
  readonly problems: unknown[] = []
  consuming: ConsumeOptions | null = null
  closes = 0
  isDown = false
  answer: (message: OutgoingMessage) => unknown | null = () => null
  onBury: () => Promise<void> = async () => {}
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

  /** Hands a message out. */
  deliver(message: OutgoingMessage, deliveries = 1): IncomingMessage {
    const { contentType, attributes, body } = message
    const incoming = { contentType, attributes, body, deliveries }
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

  async bury(message: IncomingMessage, burial: Burial): Promise<void> {
    await this.onBury()
    this.buried.push({ message, burial })
  }

  async extend(messages: readonly IncomingMessage[]): Promise<void> {
    this.extended.push([...messages])
  }

  async pause(): Promise<void> {}

  async close(): Promise<void> {
    this.closes++
  }
}
