import { AftercommitError, BrokerUnavailableError, InvalidSettingError } from '../../core/errors.js'
import { type Answer, BROKER, type NatsLine, NobodyAnswers } from './line.js'

const API = '$JS.API'
const NANOS = 1_000_000

/** Error codes of JetStream; they are part of its protocol. */
const CONSUMER_NOT_FOUND = 10014
const STREAM_NAME_IN_USE = 10058
const STREAM_NOT_FOUND = 10059
const MESSAGE_TOO_LARGE = 10054
const HEADERS_TOO_LARGE = 10097
/** All else that a stream answers to a message is about the stream, the account or the server, whatever its class. */
const ABOUT_MESSAGE: readonly unknown[] = [MESSAGE_TOO_LARGE, HEADERS_TOO_LARGE]

interface Reply {
  readonly error?: { readonly code: number; readonly err_code?: number; readonly description?: string }
  readonly stream?: string
  readonly config?: Readonly<Record<string, unknown>>
}

export interface JetStreamOptions {
  readonly replicas: number
  readonly timeoutMs: number
}

/** The requests of JetStream that a bus needs. They are the same for every version of the server. */
export class JetStream {
  readonly line: NatsLine
  readonly timeoutMs: number
  readonly #replicas: number

  constructor(line: NatsLine, { replicas, timeoutMs }: JetStreamOptions) {
    this.line = line
    this.timeoutMs = timeoutMs
    this.#replicas = replicas
  }

  /** One that is there is used as it is. */
  async ensureStream(name: string): Promise<void> {
    const found = await this.#request(`STREAM.INFO.${name}`)
    if (found.error?.err_code !== STREAM_NOT_FOUND) return accepted(found)
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
    // Somebody was faster, with other settings.
    if (made.error?.err_code !== STREAM_NAME_IN_USE) accepted(made)
  }

  /** Answers for how long it leaves a message with a consumer that gives no sign. */
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
    accepted(found)
    return leaseOf(name, takeoverMs, found.config ?? {})
  }

  /**
   * Makes the server look which requests still have somebody who listens. It must come before messages are given back:
   * servers up to 2.9 at least lose sight of one, for as long as `ack_wait`, when all requests that they have are dead.
   */
  async forgetRequests(stream: string, consumer: string): Promise<void> {
    accepted(await this.#request(`CONSUMER.INFO.${stream}.${consumer}`))
  }

  /** Null when the stream has taken the message, or had it already. */
  verdict(stream: string, answer: Answer | undefined): Error | null {
    if (answer === undefined || answer instanceof Error) return answer ?? new NobodyAnswers(stream)
    const reply = parse(answer.data)
    if (reply.error) return refusal(reply.error, ABOUT_MESSAGE.includes(reply.error.err_code))
    if (reply.stream === stream) return null
    return new AftercommitError(
      'BROKER_REFUSED',
      `The NATS stream ${stream} does not listen on the subjects ${stream}.>: ${reply.stream} has taken the message.`,
    )
  }

  pull(stream: string, consumer: string, reply: string, batch: number, times: PullTimes): void {
    const request = { batch, expires: times.expiresMs * NANOS, idle_heartbeat: times.heartbeatMs * NANOS }
    const subject = `${API}.CONSUMER.MSG.NEXT.${stream}.${consumer}`
    this.line.connection.publish(subject, JSON.stringify(request), { reply })
  }

  async #request(what: string, body?: object): Promise<Reply> {
    const payload = body === undefined ? '' : JSON.stringify(body)
    return parse((await this.line.ask({ subject: `${API}.${what}`, payload }, this.timeoutMs)).data)
  }
}

export interface PullTimes {
  readonly expiresMs: number
  readonly heartbeatMs: number
}

const decoder = new TextDecoder()

function parse(data: Uint8Array): Reply {
  try {
    return JSON.parse(decoder.decode(data)) as Reply
  } catch (error) {
    throw new BrokerUnavailableError(BROKER, 'has answered something that is no JSON', error)
  }
}

function accepted(reply: Reply): void {
  // From 500 on it is the server that cannot, for example for want of space.
  if (reply.error) throw refusal(reply.error, reply.error.code < 500)
}

function refusal({ code, err_code, description }: NonNullable<Reply['error']>, isOurFault: boolean): Error {
  const what = `${description ?? 'no reason given'} (${err_code ?? code})`
  if (isOurFault) return new AftercommitError('BROKER_REFUSED', `NATS has refused: ${what}.`)
  return new BrokerUnavailableError(BROKER, `takes nothing now: ${what}`)
}

function leaseOf(name: string, takeoverMs: number, config: Readonly<Record<string, unknown>>): number {
  if (config.deliver_subject !== undefined || config.ack_policy !== 'explicit') {
    throw new InvalidSettingError(
      'group',
      `the NATS consumer ${name} must be a pull consumer with explicit ack`,
    )
  }
  const leaseMs = Number(config.ack_wait) / NANOS
  // Signs of life go out every third of takeoverMs.
  if (leaseMs >= takeoverMs / 2) return leaseMs
  throw new InvalidSettingError(
    'takeoverMs',
    `must be at most ${Math.floor(leaseMs)}, the ack_wait of the NATS consumer ${name}; or change that one`,
  )
}
