import type { Statement } from '../driver.js'
import { BEGIN, isParsed, type PgConnection, takesBytes, unnamed, writeBytes } from './pg-packet.js'
import { encode } from './pg-wire.js'

/** What the server says of the BEGIN, in one packet with a statement and by itself. */
const ANSWERS = ['parseComplete', 'bindComplete', 'commandComplete']
const ANSWERS_PARSED = ANSWERS.slice(1)
const ANSWERS_ALONE = ['commandComplete', 'readyForQuery']
const BEGIN_BYTES = encode([{ statement: BEGIN, params: [] }], false) as Buffer

interface Connection extends PgConnection {
  readonly stream: PgConnection['stream'] & { destroy?(): void; readonly writableCorked?: number }
  query(text: string): void
  emit(event: string, ...args: unknown[]): boolean
}

interface Client {
  readonly connection?: unknown
  readonly readyForQuery?: unknown
  getTransactionStatus?(): string | null
}

/** What stood there before ours. */
interface Doors {
  readonly parse: Connection['parse']
  readonly bind: Connection['bind']
  readonly query: Connection['query']
  readonly emit: Connection['emit']
  readonly status: NonNullable<Client['getTransactionStatus']>
}

/**
 * A BEGIN that goes in one packet with the first statement of its transaction, and so costs no round trip. Nothing is
 * carried out without it: when it fails the server skips what came with it, and the connection is given up. The client
 * does not know of it: the server's answers to it are kept back. Text without parameters waits for its answer: there
 * are poolers (PgCat) that let it overtake what came before it in the packet, and it would commit by itself.
 *
 * By `parse` or `bind` every statement with parameters leaves the client, whoever sends it; by `query` all others. The
 * names are written out wherever they are put in place and taken back: this is done for every transaction.
 */
export class LateBegin {
  readonly #client: Client
  readonly #connection: Connection
  readonly #statement: Statement
  readonly #before: Doors
  readonly #ours: Doors
  #isHeld = true
  #isOver = false
  #hasFailed = false
  #answers = ANSWERS
  /** Of those, how many have come. */
  #heard = 0
  /** Sends what waits for the last of them. */
  #next: (() => void) | null = null

  private constructor(client: Client, connection: Connection, prepare: boolean) {
    this.#client = client
    this.#connection = connection
    this.#statement = prepare ? BEGIN : unnamed(BEGIN)
    const { parse, bind, query, emit } = connection
    const status = client.getTransactionStatus as Doors['status']
    this.#before = { parse, bind, query, emit, status }
    this.#ours = {
      parse: (message) => {
        if (this.#isHeld) this.#send()
        parse.call(connection, message)
      },
      bind: (message) => {
        if (this.#isHeld) this.#send()
        bind.call(connection, message)
      },
      query: (text) => {
        const next = () => query.call(connection, text)
        if (this.#isHeld) this.#sendAlone(next)
        else next()
      },
      emit: (...args) => {
        if (this.#isForBegin(args[0])) return true
        const heard = emit.apply(connection, args)
        // Without the BEGIN every further statement would commit by itself.
        if (this.#hasFailed) connection.stream.destroy?.()
        return heard
      },
      // Whoever asks is in a transaction.
      status: () => (this.#isOver ? status.call(client) : 'T'),
    }
    connection.parse = this.#ours.parse
    connection.bind = this.#ours.bind
    connection.query = this.#ours.query
    client.getTransactionStatus = this.#ours.status
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

  /**
   * If it was not sent it never will be. Client and connection do as they did; what somebody else has put there meanwhile
   * stays, and calls ours, which lets everything pass by then.
   */
  drop(): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#isHeld = false
    this.#next = null
    const client = this.#client
    const connection = this.#connection
    const ours = this.#ours
    const before = this.#before
    if (connection.parse === ours.parse) connection.parse = before.parse
    if (connection.bind === ours.bind) connection.bind = before.bind
    if (connection.query === ours.query) connection.query = before.query
    if (connection.emit === ours.emit) connection.emit = before.emit
    if (client.getTransactionStatus === ours.status) client.getTransactionStatus = before.status
  }

  #listen(): void {
    this.#isHeld = false
    this.#connection.emit = this.#ours.emit
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
    // pg writes a statement corked, and then it goes with it. Of other senders: when theirs is written as well.
    if (!stream.writableCorked) {
      stream.cork?.()
      process.nextTick(() => stream.uncork?.())
    }
    const { name, text } = this.#statement
    const isKnown = isParsed(connection, this.#statement)
    if (isKnown) this.#answers = ANSWERS_PARSED
    if (isKnown && takesBytes(connection, this.#before.bind)) {
      writeBytes(connection, BEGIN_BYTES)
      return
    }
    if (!isKnown) connection.parse({ name, text })
    // When it fails the connection is given up.
    if (name !== '') connection.parsedStatements[name] = text
    connection.bind({ statement: name, values: [] })
    connection.execute({})
  }

  /** It is kept back: the client has not asked for it. */
  #isForBegin(event: string): boolean {
    if (this.#isOver) return false
    if (this.#heard < this.#answers.length) {
      if (event === this.#answers[this.#heard]) {
        this.#heard++
        if (this.#heard === this.#answers.length) this.#next?.()
        return true
      }
      if (event === 'errorMessage') {
        this.#hasFailed = true
        this.drop()
        return false
      }
    }
    // From here on the client knows by itself whether it is in a transaction.
    if (event === 'readyForQuery') this.drop()
    return false
  }
}
