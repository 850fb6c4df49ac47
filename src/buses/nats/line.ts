import { randomBytes } from 'node:crypto'
import type { Clock } from '../../core/clock.js'
import { BrokerUnavailableError } from '../../core/errors.js'

export interface NatsHeaders extends Iterable<[string, string[]]> {
  readonly code: number
  readonly description: string
  get(name: string): string
}

export interface NatsMessage {
  readonly subject: string
  readonly reply?: string
  readonly data: Uint8Array
  readonly headers?: NatsHeaders
}

export interface NatsSubscription {
  unsubscribe(): void
  drain(): Promise<void>
}

/** What a bus uses of a connection of `@nats-io/transport-node`. */
export interface NatsConnection {
  readonly info?: { readonly max_payload: number }
  publish(
    subject: string,
    payload?: Uint8Array | string,
    options?: { reply?: string; headers?: object },
  ): void
  subscribe(
    subject: string,
    options: { callback(error: Error | null, message: NatsMessage): void },
  ): NatsSubscription
  status(): AsyncIterable<{ readonly type: string }>
  isClosed(): boolean
}

export interface Question {
  readonly subject: string
  readonly payload: Uint8Array | string
  readonly headers?: object
}

export type Answer = NatsMessage | Error

/** What somebody wants to know of the connection. */
export interface LineListener {
  onDown(error: Error): void
  onUp(): void
}

interface Asked {
  readonly subject: string
  settle(answer: Answer): void
}

export const BROKER = 'NATS'

/**
 * Questions and answers over a connection: pipelined, with one timer for many. Questions under way fail as soon as the
 * connection is lost, since the client would keep them waiting, and at once while there is none.
 */
export class NatsLine {
  readonly connection: NatsConnection
  readonly #clock: Clock
  readonly #inboxPrefix: string
  readonly #asked = new Map<string, Asked>()
  readonly #listeners = new Set<LineListener>()
  readonly #busy = new Set<Promise<unknown>>()
  #inbox = ''
  #count = 0
  #subscription: NatsSubscription | null = null
  #statuses: AsyncIterable<unknown> | null = null
  #isLost = false

  constructor(connection: NatsConnection, clock: Clock, inboxPrefix: string) {
    this.connection = connection
    this.#clock = clock
    this.#inboxPrefix = inboxPrefix
  }

  get isDown(): boolean {
    return this.#isLost || this.connection.isClosed()
  }

  newInbox(): string {
    return `${this.#inboxPrefix}.${randomBytes(12).toString('hex')}`
  }

  /** Only while somebody listens or asks is the connection watched. */
  listen(listener: LineListener): void {
    this.#open()
    this.#listeners.add(listener)
  }

  unlisten(listener: LineListener): void {
    this.#listeners.delete(listener)
  }

  /** Sends all before it waits for the first answer. Never rejects. */
  askAll(questions: readonly Question[], timeoutMs: number): Promise<readonly Answer[]> {
    const answers = new Promise<readonly Answer[]>((resolve) => this.#askAll(questions, timeoutMs, resolve))
    this.#busy.add(answers)
    void answers.then(() => this.#busy.delete(answers))
    return answers
  }

  async ask(question: Question, timeoutMs: number): Promise<NatsMessage> {
    const [answer] = await this.askAll([question], timeoutMs)
    if (answer instanceof Error) throw answer
    return answer as NatsMessage
  }

  /** Questions under way are waited for; while there are always new ones it stays open. It opens again when it is used. */
  async close(): Promise<void> {
    await Promise.all(this.#busy)
    if (this.#asked.size > 0) return
    this.#subscription?.unsubscribe()
    this.#subscription = null
    const statuses = this.#statuses as { stop?(): void } | null
    this.#statuses = null
    this.#isLost = false
    statuses?.stop?.()
  }

  #askAll(
    questions: readonly Question[],
    timeoutMs: number,
    done: (answers: readonly Answer[]) => void,
  ): void {
    const answers = new Array<Answer>(questions.length)
    const tokens: string[] = []
    let left = questions.length
    const late = () => {
      for (const token of tokens)
        this.#asked.get(token)?.settle(new BrokerUnavailableError(BROKER, 'has not answered in time'))
    }
    const timer = this.#clock.setTimer(late, timeoutMs)
    const finish = () => {
      timer.cancel()
      done(answers)
    }
    if (left === 0) finish()
    for (const [at, question] of questions.entries()) {
      const token = (this.#count++).toString(36)
      tokens.push(token)
      const settle = (answer: Answer) => {
        if (!this.#asked.delete(token)) return
        answers[at] = answer
        if (--left === 0) finish()
      }
      this.#asked.set(token, { subject: question.subject, settle })
      this.#send(question, token, settle)
    }
  }

  #send({ subject, payload, headers }: Question, token: string, settle: (answer: Answer) => void): void {
    try {
      if (this.isDown) throw lost(this.connection.isClosed())
      this.#open()
      const reply = `${this.#inbox}.${token}`
      this.connection.publish(subject, payload, headers ? { reply, headers } : { reply })
    } catch (error) {
      settle(error instanceof Error ? error : new Error(String(error)))
    }
  }

  #open(): void {
    if (!this.#statuses) {
      this.#isLost = false
      const statuses = this.connection.status()
      this.#statuses = statuses
      void this.#watch(statuses)
    }
    if (this.#subscription || this.connection.isClosed()) return
    this.#inbox = this.newInbox()
    this.#subscription = this.connection.subscribe(`${this.#inbox}.*`, {
      callback: (error, message) => this.#answer(error, message),
    })
  }

  #answer(error: Error | null, message: NatsMessage): void {
    if (error) {
      this.#subscription = null
      this.#failAll(error)
      return
    }
    const asked = this.#asked.get(message.subject.slice(this.#inbox.length + 1))
    const isNobody = message.headers?.code === 503 && message.data.length === 0
    asked?.settle(isNobody ? new NobodyAnswers(asked.subject) : message)
  }

  async #watch(statuses: AsyncIterable<{ readonly type: string }>): Promise<void> {
    try {
      for await (const status of statuses) {
        if (this.#statuses !== statuses) return
        if (status.type === 'disconnect') this.#down(false)
        else if (status.type === 'reconnect') this.#up()
        else if (status.type === 'error') this.#refused((status as { error?: unknown }).error)
      }
    } catch {
      // The client has no more to say.
    }
    if (this.#statuses !== statuses) return
    this.#statuses = null
    this.#subscription = null
    this.#down(true)
  }

  #down(isForGood: boolean): void {
    this.#isLost = true
    const error = lost(isForGood)
    this.#failAll(error)
    for (const listener of [...this.#listeners]) listener.onDown(error)
  }

  #up(): void {
    this.#isLost = false
    for (const listener of [...this.#listeners]) listener.onUp()
  }

  /** The server says so on the connection, and sends no answer. A right can be given back: no message is to blame. */
  #refused(error: unknown): void {
    const { operation, subject } = (error ?? {}) as { operation?: unknown; subject?: unknown }
    if (operation !== 'publish') return
    const refusal = new BrokerUnavailableError(BROKER, `does not allow to publish to ${subject}`, error)
    for (const asked of [...this.#asked.values()]) if (asked.subject === subject) asked.settle(refusal)
  }

  #failAll(error: Error): void {
    for (const asked of [...this.#asked.values()]) asked.settle(error)
  }
}

function lost(isForGood: boolean): BrokerUnavailableError {
  const what = isForGood ? 'cannot be reached: its connection is closed for good' : 'has lost its connection'
  return new BrokerUnavailableError(BROKER, what)
}

/** There is no such stream or consumer, or JetStream is off or not ready yet. */
export class NobodyAnswers extends BrokerUnavailableError {
  constructor(subject: string) {
    super(BROKER, `has nobody who answers on ${subject}: JetStream is off or starting, or the stream is gone`)
  }
}
