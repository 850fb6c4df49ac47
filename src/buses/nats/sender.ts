import type { OutgoingMessage } from '../../bus.js'
import { NoResponderError } from './errors.js'
import type { JetStream } from './jetstream.js'
import { headersOf, subjectOf } from './message.js'

/** Publishes messages to one stream. */
export class NatsSender {
  readonly #jetstream: JetStream
  readonly #stream: string
  /** Whether the stream existed when it was last checked. */
  #isReady = false

  constructor(jetstream: JetStream, stream: string) {
    this.#jetstream = jetstream
    this.#stream = stream
  }

  async send(messages: readonly OutgoingMessage[]): Promise<readonly (unknown | null)[]> {
    if (!this.#isReady) await this.check()
    const requests = messages.map(({ id, type, contentType, attributes, body }) => ({
      subject: subjectOf(this.#stream, type),
      payload: body,
      headers: headersOf(id, contentType, attributes),
    }))
    const replies = await this.#jetstream.client.requestAll(requests, this.#jetstream.timeoutMs)
    // The stream may have been deleted, so the next call creates it again.
    if (replies.some((reply) => reply instanceof NoResponderError)) this.#isReady = false
    return replies.map((reply) => this.#jetstream.publishResult(this.#stream, reply))
  }

  /** Creates a missing stream. */
  async check(): Promise<void> {
    await this.#jetstream.ensureStream(this.#stream)
    this.#isReady = true
  }
}
