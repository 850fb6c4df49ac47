import { AftercommitError, BrokerUnavailableError, InvalidSettingError } from '../../core/errors.js'
import type { NatsClient, NatsReply } from './client.js'
import { BROKER, errorOf, type JetStreamError, NoResponderError } from './errors.js'

const API = '$JS.API'
const NANOS = 1_000_000

/** Error codes of JetStream, which are part of its protocol. */
const CONSUMER_NOT_FOUND = 10014
const STREAM_NAME_IN_USE = 10058
const STREAM_NOT_FOUND = 10059
const MESSAGE_TOO_LARGE = 10054
const HEADERS_TOO_LARGE = 10097
/** Errors that the message causes. All other errors of a publish concern the stream, the account or the server. */
const MESSAGE_ERRORS: readonly unknown[] = [MESSAGE_TOO_LARGE, HEADERS_TOO_LARGE]

interface ApiReply {
  readonly error?: JetStreamError
  readonly stream?: string
  readonly config?: Readonly<Record<string, unknown>>
}

export interface JetStreamOptions {
  readonly replicas: number
  readonly timeoutMs: number
}

/** Sends the requests of the JetStream API that the bus needs. All versions of the server support them. */
export class JetStream {
  readonly client: NatsClient
  readonly timeoutMs: number
  readonly #replicas: number

  constructor(client: NatsClient, { replicas, timeoutMs }: JetStreamOptions) {
    this.client = client
    this.timeoutMs = timeoutMs
    this.#replicas = replicas
  }

  /** Creates a missing stream. An existing stream is not changed. */
  async ensureStream(name: string): Promise<void> {
    const found = await this.#request(`STREAM.INFO.${name}`)
    if (found.error?.err_code !== STREAM_NOT_FOUND) return throwIfError(found)
    const made = await this.#request(`STREAM.CREATE.${name}`, {
      name,
      subjects: [`${name}.>`],
      storage: 'file',
      retention: 'limits',
      discard: 'old',
      max_consumers: -1,
      max_msgs: -1,
      max_bytes: -1,
      max_age: 0,
      num_replicas: this.#replicas,
      duplicate_window: 120_000 * NANOS,
    })
    // Another process has created the stream at the same time, with other settings.
    if (made.error?.err_code !== STREAM_NAME_IN_USE) throwIfError(made)
  }

  /** Creates a missing consumer. Resolves with its `ack_wait`: the lease time of a delivered message in milliseconds. */
  async ensureConsumer(stream: string, name: string, takeoverMs: number): Promise<number> {
    let found = await this.#request(`CONSUMER.INFO.${stream}.${name}`)
    if (found.error?.err_code === CONSUMER_NOT_FOUND) {
      const config = {
        durable_name: name,
        ack_policy: 'explicit',
        ack_wait: takeoverMs * NANOS,
        deliver_policy: 'all',
        replay_policy: 'instant',
        max_deliver: -1,
        max_ack_pending: -1,
      }
      const made = await this.#request(`CONSUMER.DURABLE.CREATE.${stream}.${name}`, {
        stream_name: stream,
        config,
      })
      found = made.error ? await this.#request(`CONSUMER.INFO.${stream}.${name}`) : made
    }
    throwIfError(found)
    return leaseOf(name, takeoverMs, found.config ?? {})
  }

  /**
   * Makes the server drop pull requests that have no subscriber. Call it before messages are released: if all pull requests
   * are dead, servers up to at least 2.9 do not deliver a released message again until `ack_wait` has passed.
   */
  async dropDeadRequests(stream: string, consumer: string): Promise<void> {
    throwIfError(await this.#request(`CONSUMER.INFO.${stream}.${consumer}`))
  }

  /** Returns null if the stream has stored the message, now or earlier, and otherwise the error. */
  publishResult(stream: string, message: NatsReply | undefined): Error | null {
    if (message === undefined || message instanceof Error) return message ?? new NoResponderError(stream)
    const reply = parse(message.data)
    if (reply.error) return errorOf(reply.error, MESSAGE_ERRORS.includes(reply.error.err_code))
    if (reply.stream === stream) return null
    return new AftercommitError(
      'BROKER_REFUSED',
      `The NATS stream ${stream} does not listen on the subjects ${stream}.>: ${reply.stream} has taken the message.`,
    )
  }

  pull(stream: string, consumer: string, reply: string, batch: number, times: PullTimes): void {
    const request = { batch, expires: times.expiresMs * NANOS, idle_heartbeat: times.heartbeatMs * NANOS }
    const subject = `${API}.CONSUMER.MSG.NEXT.${stream}.${consumer}`
    this.client.connection.publish(subject, JSON.stringify(request), { reply })
  }

  async #request(what: string, body?: object): Promise<ApiReply> {
    const payload = body === undefined ? '' : JSON.stringify(body)
    return parse((await this.client.request({ subject: `${API}.${what}`, payload }, this.timeoutMs)).data)
  }
}

export interface PullTimes {
  readonly expiresMs: number
  readonly heartbeatMs: number
}

const decoder = new TextDecoder()

function parse(data: Uint8Array): ApiReply {
  try {
    return JSON.parse(decoder.decode(data)) as ApiReply
  } catch (error) {
    throw new BrokerUnavailableError(BROKER, 'has sent a reply that is not JSON', error)
  }
}

function throwIfError(reply: ApiReply): void {
  // Codes from 500 are failures of the server, for example insufficient storage.
  if (reply.error) throw errorOf(reply.error, reply.error.code < 500)
}

function leaseOf(name: string, takeoverMs: number, config: Readonly<Record<string, unknown>>): number {
  if (config.deliver_subject !== undefined || config.ack_policy !== 'explicit') {
    throw new InvalidSettingError(
      'group',
      `the NATS consumer ${name} must be a pull consumer with explicit ack`,
    )
  }
  const leaseMs = Number(config.ack_wait) / NANOS
  // The consumer extends its leases every takeoverMs / 3.
  if (leaseMs >= takeoverMs / 2) return leaseMs
  throw new InvalidSettingError(
    'takeoverMs',
    `must be at most ${Math.floor(leaseMs)}, the ack_wait of the NATS consumer ${name}, or change the consumer`,
  )
}
