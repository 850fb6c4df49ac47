import { describe, expect, it } from 'vitest'
import { until } from '../../support/waiting.js'
import { opened } from './with-the-commit.kit.js'

/**
 * Statements that the server of a connection has parsed go out as bytes of our own, past pg's writer. wireOf(), by which
 * the tests beside this one look on, is in the way of that: there pg writes.
 */

interface Watched {
  readonly connection: {
    readonly stream: { write(bytes: Uint8Array, ...rest: unknown[]): boolean }
    execute(message: object): void
  }
}

/** Of each write, the letters of its messages. */
function writesOf(client: unknown): string[] {
  const { stream } = (client as Watched).connection
  const { write } = stream
  const writes: string[] = []
  stream.write = (bytes, ...rest) => {
    let letters = ''
    const view = Buffer.from(bytes)
    for (let at = 0; at < view.length; at += 1 + view.readInt32BE(at + 1)) {
      letters += String.fromCharCode(view[at] ?? 0)
    }
    writes.push(letters)
    return write.call(stream, bytes, ...rest)
  }
  return writes
}

/** Started: its events go by the hot path, so that no statement asks for their `seq`. */
async function shop() {
  const { pool, outbox, handled } = await opened({ doorbell: false })
  await pool.query('create table business (id int primary key)')
  await outbox.start()
  let count = 0
  const order = (payload: unknown, begun: (client: unknown) => void = () => {}) =>
    outbox.transaction(async (tx) => {
      begun(tx.client)
      const values = [++count]
      await tx.client.query({ name: 'order', text: 'insert into business (id) values ($1)', values })
      await tx.publish({ type: 'thing.happened', payload })
    })
  /** On a client that has seen one: which, is for the pool to say. What `look` gives is taken as it is at the commit. */
  const again = async (payload: unknown, look: (client: unknown) => readonly string[]) => {
    const clients = new Set<unknown>()
    let seen: readonly string[] | null = null
    while (seen === null) {
      await order(payload, (client) => {
        if (clients.size === clients.add(client).size) seen = look(client)
      })
    }
    const atCommit = [...(seen as readonly string[])]
    await until('all are handled', () => handled.length === count)
    return { seen: atCommit, handled: handled.at(-1) }
  }
  return { again }
}

describe('a transaction on a connection that has seen one', () => {
  it('begins by one write in front of its statement, and ends by one', async () => {
    const { again } = await shop()
    const { seen } = await again('short', writesOf)
    expect(seen).toEqual(['BE', 'B', 'D', 'E', 'S', 'BEBES'])
  })

  it('leaves what is long to pg, which writes all of it', async () => {
    const { again } = await shop()
    const long = { text: 'ä'.repeat(200_000) }
    const { seen, handled } = await again(long, writesOf)
    expect(seen).toEqual(['BE', 'B', 'D', 'E', 'S', 'B', 'E', 'B', 'E', 'S'])
    expect(handled).toEqual(long)
  })

  it('leaves everything to pg when somebody looks on', async () => {
    const { again } = await shop()
    const { seen } = await again('watched', (client) => {
      const { connection } = client as Watched
      const { execute } = connection
      const executed: string[] = []
      connection.execute = (message) => {
        executed.push('E')
        execute.call(connection, message)
      }
      return executed
    })
    // Of the BEGIN, the order, the event and the COMMIT.
    expect(seen).toEqual(['E', 'E', 'E', 'E'])
  })
})
