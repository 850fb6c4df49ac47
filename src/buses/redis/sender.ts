import type { OutgoingMessage } from '../../bus.js'
import type { Clock } from '../../core/clock.js'
import { AftercommitError, BrokerUnavailableError } from '../../core/errors.js'
import { type Argument, BROKER, type Calls } from './client.js'
import { isUnavailable } from './errors.js'
import { type Fields, fieldsOf, pack, packedBytes } from './message.js'
import { SEND } from './scripts.js'

/**
 * Maximum size of one command. Redis blocks while it runs the script. The lowest `proto-max-bulk-len` that Redis accepts is
 * 1 MiB, so commands of this size always pass.
 */
const BATCH_BYTES = 1_000_000
const LIMIT = 'proto-max-bulk-len'
/** Share of the confirm timeout that `send` uses, so that known answers reach the bus before its own timeout ends. */
const TIMEOUT_SHARE = 0.8

export interface SenderOptions {
  readonly calls: Calls
  readonly clock: Clock
  readonly stream: string
  /** Empty if the stream is not trimmed. */
  readonly maxLength: string
  readonly confirmTimeoutMs: number
}

interface PackedMessage {
  readonly fields: Fields
  readonly bytes: number
}

interface Outcome {
  readonly sent: number
  /** Error of the first message that was not sent, or null if all messages were sent. */
  readonly error: unknown | null
  /** Whether Redis refused the whole command. Any of its messages, or their total size, may be the cause. */
  readonly isWhole?: boolean
}

/**
 * Sends many messages with one command. With one command per message, a reconnecting client may drop some commands and keep
 * later ones, which changes the order. If Redis refuses a message, the messages behind it are still sent.
 */
export class RedisSender {
  readonly #options: SenderOptions

  constructor(options: SenderOptions) {
    this.#options = options
  }

  async send(messages: readonly OutgoingMessage[]): Promise<readonly (unknown | null)[]> {
    const { clock, confirmTimeoutMs } = this.#options
    const deadline = clock.monotonic() + confirmTimeoutMs * TIMEOUT_SHARE
    const packed = messages.map(packedOf)
    const answers: (unknown | null)[] = []
    let maxCount = packed.length
    while (answers.length < packed.length) {
      const batch = batchFrom(packed, answers.length, maxCount)
      const { sent, error, isWhole } = await this.#sendBatch(batch, deadline)
      for (let n = 0; n < sent; n++) answers.push(null)
      // After a refusal the batches start small, because the next refusal may be close, and grow again.
      if (error === null) maxCount *= 2
      else if (isUnavailable(error)) while (answers.length < packed.length) answers.push(error)
      else {
        if (!isWhole || batch.length === 1) answers.push(error)
        maxCount = isWhole ? Math.ceil(batch.length / 2) : 1
      }
    }
    return answers
  }

  /** Never rejects. */
  async #sendBatch(batch: readonly PackedMessage[], deadline: number): Promise<Outcome> {
    const { stream, maxLength } = this.#options
    const command = pack(
      batch.map(({ fields }) => fields),
      batch.reduce((sum, { bytes }) => sum + bytes, 0),
    )
    try {
      if (command.length > BATCH_BYTES) await this.#refuseBeyondLimit(command.length, deadline)
      const answer = await this.#call(['EVAL', SEND, '1', stream, maxLength, command], deadline)
      const [sent, error] = answer as [number, Buffer?]
      const refusal = error === undefined ? null : new AftercommitError('BROKER_REFUSED', String(error))
      return { sent: Number(sent), error: refusal }
    } catch (error) {
      // After some errors Redis closes the connection. The TYPE command waits until the client has noticed that.
      if (!isUnavailable(error)) await this.#call(['TYPE', stream], deadline).catch(() => {})
      return { sent: 0, error, isWhole: true }
    }
  }

  /**
   * Throws if the command exceeds the size limit of Redis. Redis would close the connection, usually without a reply, which
   * looks like an outage.
   */
  async #refuseBeyondLimit(bytes: number, deadline: number): Promise<void> {
    // Without the permission for CONFIG GET the limit is unknown, and the command is sent.
    const asked = await this.#call(['CONFIG', 'GET', LIMIT], deadline).catch(() => [])
    const limit = Number(String((asked as readonly unknown[])[1]))
    if (bytes <= limit || Number.isNaN(limit)) return
    const why = `ERR The event takes ${bytes} bytes, and ${LIMIT} of Redis is ${limit}. Raise the limit, or publish a smaller event.`
    throw new AftercommitError('BROKER_REFUSED', why)
  }

  async #call(args: readonly Argument[], deadline: number): Promise<unknown> {
    const leftMs = deadline - this.#options.clock.monotonic()
    if (leftMs <= 0) throw new BrokerUnavailableError(BROKER, 'has not answered in time')
    return this.#options.calls.call(args, leftMs)
  }
}

function packedOf(message: OutgoingMessage): PackedMessage {
  const fields = fieldsOf(message)
  return { fields, bytes: packedBytes(fields) }
}

/** Returns the next batch, which has at least one message. */
function batchFrom(
  packed: readonly PackedMessage[],
  from: number,
  maxCount: number,
): readonly PackedMessage[] {
  let bytes = 0
  let to = from
  do bytes += packed[to++]?.bytes ?? 0
  while (to < packed.length && to - from < maxCount && bytes + (packed[to]?.bytes ?? 0) <= BATCH_BYTES)
  return packed.slice(from, to)
}
