import type { Statement } from '../driver.js'
import { BEGIN, type PgConnection, unnamed } from './pg-packet.js'

/** By one of these every statement with parameters leaves the client, whoever sends it; by `query` all others. */
const DOORS = ['parse', 'bind'] as const
/** What the server says of the BEGIN, in one packet with a statement and by itself. */
const ANSWERS = ['parseComplete', 'bindComplete', 'commandComplete']
const ANSWERS_PARSED = ANSWERS.slice(1)
const ANSWERS_ALONE = ['commandComplete', 'readyForQuery']

interface Connection extends PgConnection {
  readonly stream: PgConnection['stream'] & { destroy?(): void }
  query(text: string): void
  emit(event: string, ...args: unknown[]): boolean
}

interface Client {
  readonly connection?: unknown
  readonly readyForQuery?: unknown
  getTransactionStatus?(): string | null
}

type Emit = (event: string, ...args: unknown[]) => boolean

/**
 * A BEGIN that goes in one packet with the first statement of its transaction, and so costs no round trip. Nothing is
 * carried out without it: when it fails the server skips what came with it, and the connection is given up. The client
 * does not know of it: the server's answers to it are kept back. Text without parameters waits for its answer: there
 * are poolers (PgCat) that let it overtake what came before it in the packet, and it would commit by itself.
 */
export class LateBegin {
  readonly #connection: Connection
  readonly #statement: Statement
  #undo: (() => void)[] = []
  #isHeld = true
  #answers = ANSWERS
  /** Of those, how many have come. */
  #heard = 0
  /** Sends what waits for the last of them. */
  #next: (() => void) | null = null

  private constructor(client: Client, connection: Connection, prepare: boolean) {
    this.#connection = connection
    this.#statement = prepare ? BEGIN : unnamed(BEGIN)
    for (const door of DOORS) {
      const leave = connection[door] as (message: unknown) => void
      this.#override(connection, door, (message: unknown) => {
        if (this.#isHeld) this.#send()
        leave.call(connection, message)
      })
    }
    const leave = connection.query
    this.#override(connection, 'query', (text: string) => {
      const next = () => leave.call(connection, text)
      if (this.#isHeld) this.#sendAlone(next)
      else next()
    })
    // Whoever asks is in a transaction.
    const status = client.getTransactionStatus as () => string | null
    this.#override(client, 'getTransactionStatus', () => (this.#undo.length > 0 ? 'T' : status.call(client)))
  }

  /** Null when the client, one that takes packets, had better be asked to BEGIN. */
  static on(client: Client, prepare: boolean): LateBegin | null {
    const { emit, query, stream } = (client.connection ?? {}) as Partial<Connection>
    const isKnown = [emit, query, stream?.destroy].every((one) => typeof one === 'function')
    const isIdle = client.readyForQuery === true && client.getTransactionStatus?.() === 'I'
    return isKnown && isIdle ? new LateBegin(client, client.connection as Connection, prepare) : null
  }

  /** Nothing was sent yet. */
  get isHeld(): boolean {
    return this.#isHeld
  }

  /** False when it was sent. Otherwise it never will be. */
  giveUp(): boolean {
    if (!this.#isHeld) return false
    this.drop()
    return true
  }

  /** For what reads the server's answers itself, as COPY does: in front of it, in the client's queue. */
  sendBefore(query: (text: string, answered: (error: unknown) => void) => unknown): void {
    this.#isHeld = false
    query('BEGIN', (error) => {
      this.drop()
      if (error) this.#connection.stream.destroy?.()
    })
  }

  /** If it was not sent it never will be. Client and connection do as they did. */
  drop(): void {
    this.#isHeld = false
    this.#next = null
    for (const undo of this.#undo.reverse()) undo()
    this.#undo = []
  }

  /** What somebody else has put there meanwhile stays: it calls ours, which lets everything pass by then. */
  #override(target: object, name: string, value: unknown): void {
    const methods = target as Record<string, unknown>
    const before = methods[name]
    methods[name] = value
    this.#undo.push(() => {
      if (methods[name] === value) methods[name] = before
    })
  }

  #listen(): void {
    this.#isHeld = false
    const connection = this.#connection
    const { emit } = connection
    this.#override(connection, 'emit', (event: string, ...args: unknown[]) => this.#hear(emit, event, args))
  }

  #sendAlone(next: () => void): void {
    this.#answers = ANSWERS_ALONE
    this.#next = next
    this.#listen()
    this.#connection.query('BEGIN')
  }

  #send(): void {
    this.#listen()
    const connection = this.#connection
    const { stream } = connection
    stream.cork?.()
    // When the statement that it goes with is written as well.
    process.nextTick(() => stream.uncork?.())
    const { name, text } = this.#statement
    if (name !== '' && connection.parsedStatements[name] !== undefined) this.#answers = ANSWERS_PARSED
    else connection.parse({ name, text })
    // When it fails the connection is given up.
    if (name !== '') connection.parsedStatements[name] = text
    connection.bind({ statement: name, values: [] })
    connection.execute({})
  }

  #hear(emit: Emit, event: string, args: unknown[]): boolean {
    const connection = this.#connection
    if (this.#undo.length === 0) return emit.call(connection, event, ...args)
    const isForBegin = this.#heard < this.#answers.length
    if (isForBegin && event === this.#answers[this.#heard]) {
      this.#heard++
      if (this.#heard === this.#answers.length) this.#next?.()
      return true
    }
    // From here on the client knows by itself whether it is in a transaction.
    if (event === 'readyForQuery') this.drop()
    if (!isForBegin || event !== 'errorMessage') return emit.call(connection, event, ...args)
    this.drop()
    emit.call(connection, event, ...args)
    // Without the BEGIN every further statement would commit by itself.
    connection.stream.destroy?.()
    return true
  }
}
