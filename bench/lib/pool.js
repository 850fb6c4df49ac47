import pg from 'pg'

/**
 * A pool whose connections tell when the server's answer to COMMIT arrived: `onCommit(index)`, where `index` is what
 * the transaction wrote on its client as `benchIndex`. The same for all sides, and outside of their code.
 */
export function poolFor(url, { connections, onCommit }) {
  const pool = new pg.Pool({ connectionString: url, max: connections })
  pool.on('error', () => {})
  if (!onCommit) return pool
  pool.on('connect', (client) => {
    client.connection.on('commandComplete', (message) => {
      if (message.text !== 'COMMIT' || client.benchIndex === undefined) return
      onCommit(client.benchIndex)
      client.benchIndex = undefined
    })
  })
  return pool
}

/** A transaction by hand, as an application without our library writes it. */
export async function transact(pool, index, work) {
  const client = await pool.connect()
  try {
    client.benchIndex = index
    await client.query('begin')
    await work(client)
    await client.query('commit')
  } catch (error) {
    await client.query('rollback').catch(() => {})
    throw error
  } finally {
    client.release()
  }
}

/** Opens all connections before the clock runs. */
export async function warmUp(pool, connections) {
  const clients = await Promise.all(Array.from({ length: connections }, () => pool.connect()))
  for (const client of clients) client.release()
}
