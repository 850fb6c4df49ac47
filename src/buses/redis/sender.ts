import type { OutgoingMessage } from '../../bus/transport.js'
import type { Clock } from '../../core/clock.js'
import { AftercommitError, BrokerUnavailableError } from '../../core/errors.js'
import { type Argument, BROKER, type Calls, isUnavailable } from './client.js'
import { type Fields, fieldsOf, pack, packedBytes } from './message.js'
import { SEND } from './scripts.js'

/** The server does nothing else meanwhile; and every limit that it can be given (at least 1 MiB) lets so much pass. */
const BATCH_BYTES = 1_000_000
const LIMIT = 'proto-max-bulk-len'
/** What is known must be told before the bus gives up on all of them. */
const IN_TIME = 0.8

export interface SenderOptions {
  readonly calls: Calls
  readonly clock: Clock
  readonly stream: string
  /** '' for none. */
  readonly maxLength: string
  readonly confirmTimeoutMs: number
}

interface Parcel {
  readonly fields: Fields
  readonly bytes: number
}

interface Outcome {
  readonly sent: number
  /** Why no more of them were sent; null when all were. */
  readonly error: unknown | null
  /** The command was refused as such: any of its messages may be the reason, or their number. */
  readonly isWhole?: boolean
}

/**
 * Sends many messages with one command: clients that connect again keep some commands and drop others, and then messages
 * would overtake each other. A refusal stays with its message; those behind it are sent all the same.
 */
export class RedisSender {
  readonly #options: SenderOptions

  constructor(options: SenderOptions) {
    this.#options = options
  }

  async send(messages: readonly OutgoingMessage[]): Promise<readonly (unknown | null)[]> {
    const { clock, confirmTimeoutMs } = this.#options
    const lateAt = clock.monotonic() + confirmTimeoutMs * IN_TIME
    const parcels = messages.map(parcelOf)
    const answers: (unknown | null)[] = []
    let most = parcels.length
    while (answers.length < parcels.length) {
      const batch = batchFrom(parcels, answers.length, most)
      const { sent, error, isWhole } = await this.#sendBatch(batch, lateAt)
      for (let n = 0; n < sent; n++) answers.push(null)
      // Few after a refusal, since another may be near, then more and more.
      if (error === null) most *= 2
      else if (isUnavailable(error)) while (answers.length < parcels.length) answers.push(error)
      else {
        if (!isWhole || batch.length === 1) answers.push(error)
        most = isWhole ? Math.ceil(batch.length / 2) : 1
      }
    }
    return answers
  }

  /** Never rejects. */
  async #sendBatch(batch: readonly Parcel[], lateAt: number): Promise<Outcome> {
    const { stream, maxLength } = this.#options
    const packed = pack(
      batch.map(({ fields }) => fields),
      batch.reduce((sum, { bytes }) => sum + bytes, 0),
    )
    try {
      if (packed.length > BATCH_BYTES) await this.#refuseBeyondLimit(packed.length, lateAt)
      const answer = await this.#call(['EVAL', SEND, '1', stream, maxLength, packed], lateAt)
      const [sent, error] = answer as [number, Buffer?]
      const refusal = error === undefined ? null : new AftercommitError('BROKER_REFUSED', String(error))
      return { sent: Number(sent), error: refusal }
    } catch (error) {
      // After some errors Redis closes the connection; what is sent before the client knows would be lost with it.
      if (!isUnavailable(error)) await this.#call(['TYPE', stream], lateAt).catch(() => {})
      return { sent: 0, error, isWhole: true }
    }
  }

  /** Beyond its limit Redis closes the connection, and mostly the reason is lost with it: that would look like an outage. */
  async #refuseBeyondLimit(bytes: number, lateAt: number): Promise<void> {
    // Who may not ask has to try.
    const asked = await this.#call(['CONFIG', 'GET', LIMIT], lateAt).catch(() => [])
    const limit = Number(String((asked as readonly unknown[])[1]))
    if (bytes <= limit || Number.isNaN(limit)) return
    const why = `ERR The event takes ${bytes} bytes, and ${LIMIT} of Redis is ${limit}. Raise it, or publish less.`
    throw new AftercommitError('BROKER_REFUSED', why)
  }

  async #call(args: readonly Argument[], lateAt: number): Promise<unknown> {
    const leftMs = lateAt - this.#options.clock.monotonic()
    if (leftMs <= 0) throw new BrokerUnavailableError(BROKER, 'has not answered in time')
    return this.#options.calls.call(args, leftMs)
  }
}

function parcelOf(message: OutgoingMessage): Parcel {
  const fields = fieldsOf(message)
  return { fields, bytes: packedBytes(fields) }
}

/** At least one. */
function batchFrom(parcels: readonly Parcel[], from: number, most: number): readonly Parcel[] {
  let bytes = 0
  let to = from
  do bytes += parcels[to++]?.bytes ?? 0
  while (to < parcels.length && to - from < most && bytes + (parcels[to]?.bytes ?? 0) <= BATCH_BYTES)
  return parcels.slice(from, to)
}
