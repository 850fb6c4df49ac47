import { type Param, type Row, type Statement, statement } from '../driver.js'
import { encode, type Step } from './pg-wire.js'

export type { Step }

/** The part of a `pg` client's connection that queries of one's own are made with, as pg-cursor's are. */
export interface PgConnection {
  /** By name, what the server has parsed. */
  readonly parsedStatements: Record<string, unknown>
  readonly stream: {
    cork?(): void
    uncork?(): void
    write?(bytes: Uint8Array): unknown
    readonly writable?: unknown
  }
  parse(message: { name: string; text: string }): void
  bind(message: { statement: string; values: readonly (string | null)[] }): void
  execute(message: object): void
  sync(): void
  sendCopyFail?(reason: string): void
}

interface Client {
  query(packet: unknown): unknown
  readonly connection?: unknown
  readonly pipeline?: unknown
}

export interface Answer {
  /** Of the first step. */
  readonly rows: readonly Row[]
  /** What the server said of each step that was carried out: `INSERT 0 1`, `COMMIT`. */
  readonly commands: readonly string[]
  /** Why the next step was not. Null when there was none. */
  readonly error: unknown
  /** False when nothing of it has reached the server. */
  readonly sent: boolean
}

const METHODS = ['parse', 'bind', 'execute', 'sync'] as const

/** Parsed once on each connection. */
export const BEGIN = statement('BEGIN')
export const COMMIT = statement('COMMIT')

/** Not for pg-native, wrappers, and clients that pipeline: they take no queries but their own. */
export function takesPackets(client: Client): boolean {
  const connection = client.connection as Partial<PgConnection> | null | undefined
  if (!connection || client.pipeline || typeof connection.stream !== 'object') return false
  if (typeof connection.parsedStatements !== 'object') return false
  return METHODS.every((name) => typeof connection[name] === 'function')
}

/**
 * Sends the steps in one packet; the first that fails ends it. The packet is on its way, or in the client's queue,
 * when this returns. `refuse` is asked at the last moment, when everything before has been answered.
 */
export function send(
  query: (packet: unknown) => unknown,
  steps: readonly Step[],
  refuse?: () => Error | null,
): Promise<Answer> {
  return new Promise((resolve) => post(query, new Packet(steps, resolve, refuse)))
}

function post(query: (packet: unknown) => unknown, packet: Packet): void {
  try {
    const returned = query(packet)
    // A client that the application has wrapped may refuse what is not text.
    if (returned instanceof Promise) returned.catch((error) => packet.handleError(error))
  } catch (error) {
    packet.handleError(error)
  }
}

export function isPacket(config: unknown): boolean {
  return config instanceof Packet
}

/** One statement, in a packet of its own. */
export function execute(
  client: Client,
  statement: Statement,
  params: readonly Param[],
  refuse?: () => Error | null,
): Promise<readonly Row[]> {
  return new Promise((resolve, reject) => {
    const done = ({ rows, error }: Answer) => (error === null ? resolve(rows) : reject(error))
    post((packet) => client.query(packet), new Packet([{ statement, params }], done, refuse))
  })
}

/**
 * What pg's client is given instead of text. We know what comes back, so that nothing has to be described, looked
 * up and converted column by column, and several statements can share a round trip.
 */
class Packet {
  /** Of the first step: pg's client notes it once the server has parsed it. */
  readonly name: string
  readonly text: string
  /** For those who look on. */
  readonly values: readonly Param[]
  readonly #steps: readonly Step[]
  readonly #refuse: (() => Error | null) | undefined
  readonly #rows: Row[] = []
  readonly #commands: string[] = []
  #connection: PgConnection | null = null
  #sent = false
  /** pg's client wraps it when there is a query_timeout. */
  callback: (error: unknown) => void

  constructor(
    steps: readonly Step[],
    done: (answer: Answer) => void,
    refuse: (() => Error | null) | undefined,
  ) {
    const first = steps[0] as Step
    this.name = first.statement.name
    this.text = first.statement.text
    this.values = first.params
    this.#steps = steps
    this.#refuse = refuse
    // Assigned as a literal it would be made among V8's old objects, where even a dead one keeps alive what it knows.
    const callback = (error: unknown) =>
      done({ rows: this.#rows, commands: this.#commands, error, sent: this.#sent })
    this.callback = callback
  }

  submit(connection: PgConnection): Error | null {
    const refused = this.#refuse?.()
    if (refused) return refused
    this.#sent = true
    if (
      takesBytes(connection, connection.bind) &&
      this.#steps.every((step) => isParsed(connection, step.statement))
    ) {
      const bytes = encode(this.#steps, true)
      if (bytes) {
        writeBytes(connection, bytes)
        return null
      }
    }
    this.#connection = connection
    const { stream } = connection
    stream.cork?.()
    try {
      for (const { statement, params } of this.#steps) {
        const { name, text } = statement
        if (!isParsed(connection, statement)) connection.parse({ name, text })
        connection.bind({ statement: name, values: params.map(textOf) })
        connection.execute({})
      }
      connection.sync()
    } finally {
      stream.uncork?.()
    }
    return null
  }

  handleDataRow({ fields }: { fields: Row }): void {
    if (this.#commands.length === 0) this.#rows.push(fields)
  }

  handleCommandComplete({ text }: { text: string }): void {
    this.#commands.push(text)
  }

  handleError(error: unknown): void {
    this.#noteParsed()
    this.callback(error)
  }

  handleReadyForQuery(): void {
    this.#noteParsed()
    this.callback(null)
  }

  /** A step whose turn came has been parsed, whatever came of it. */
  #noteParsed(): void {
    if (this.#connection === null) return
    for (const { statement } of this.#steps.slice(1, this.#commands.length + 1)) {
      if (statement.name !== '') this.#connection.parsedStatements[statement.name] = statement.text
    }
  }

  handleRowDescription(): void {}
  handlePortalSuspended(): void {}
  handleEmptyQuery(): void {}
  handleCopyData(): void {}

  handleCopyInResponse(connection: PgConnection): void {
    connection.sendCopyFail?.('nothing is copied here')
  }
}

export function isParsed(connection: PgConnection, { name }: Statement): boolean {
  return name !== '' && connection.parsedStatements[name] !== undefined
}

/**
 * Past pg's own writer, which makes a buffer of each message. Not where this connection has other ways to write than its
 * class: somebody wants to see what goes out. `bind` is what it had before us.
 */
export function takesBytes(connection: PgConnection, bind: PgConnection['bind']): boolean {
  const { stream, execute, sync } = connection
  const own = Object.getPrototypeOf(connection) as PgConnection
  return bind === own.bind && execute === own.execute && sync === own.sync && stream.write !== undefined
}

/** As pg does it: when nothing can be written any more, whoever waits is told by the end of the connection. */
export function writeBytes({ stream }: PgConnection, bytes: Uint8Array): void {
  if (stream.writable) stream.write?.(bytes)
}

function textOf(value: Param): string | null {
  return typeof value === 'number' ? String(value) : value
}

/** Parsed anew each time: behind a pooler the next statement may meet another server connection. */
export function unnamed({ text }: Statement): Statement {
  return { name: '', text }
}
