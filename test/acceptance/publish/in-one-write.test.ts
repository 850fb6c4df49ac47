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
  const client = await pool.connect()
  client.release()
  const order = (id: number, payload: unknown) =>
    outbox.transaction(async (tx) => {
      expect(tx.client).toBe(client)
      await tx.client.query({ name: 'order', text: 'insert into business (id) values ($1)', values: [id] })
      await tx.publish({ type: 'thing.happened', payload })
    })
  await order(0, 'first')
  await until('it is handled', () => handled.length === 1)
  return { pool, client, order, handled }
}

describe('a transaction on a connection that has seen one', () => {
  it('begins by one write in front of its statement, and ends by one', async () => {
    const { client, order, handled } = await shop()
    const writes = writesOf(client)
    await order(1, { text: 'ä 😀 "quoted" \\ \u2028', nested: [null, 1.5] })
    expect(writes).toEqual(['BE', 'B', 'D', 'E', 'S', 'BEBES'])
    await until('it is handled', () => handled.length === 2)
  })

  it('leaves what is long to pg, which writes all of it', async () => {
    const { client, order, handled } = await shop()
    const writes = writesOf(client)
    const long = { text: 'ä'.repeat(200_000) }
    await order(1, long)
    expect(writes).toEqual(['BE', 'B', 'D', 'E', 'S', 'B', 'E', 'B', 'E', 'S'])
    await until('it is handled', () => handled.length === 2)
    expect(handled[1]).toEqual(long)
  })

  it('leaves everything to pg when somebody looks on', async () => {
    const { client, order, handled } = await shop()
    const { connection } = client as unknown as Watched
    const { execute } = connection
    let seen = 0
    connection.execute = (message) => {
      seen++
      execute.call(connection, message)
    }
    await order(1, 'watched')
    // Of the BEGIN, the order, the event and the COMMIT.
    expect(seen).toBe(4)
    await until('it is handled', () => handled.length === 2)
  })

  it('commits nothing when the server has lost its statements', async () => {
    const { pool, client, order } = await shop()
    await client.query('deallocate all')
    await expect(order(1, 'lost')).rejects.toMatchObject({ code: '26000' })
    expect((await pool.query("select 1 from outbox_event where payload::text like '%lost%'")).rows).toEqual(
      [],
    )
    expect((await pool.query('select id from business where id > 0')).rows).toEqual([])
  })
})
