import crypto from 'node:crypto'
import { once } from 'node:events'
import net from 'node:net'
import { createPool, type RowDataPacket } from 'mysql2/promise'
import { mysqlStore } from '../../../src/stores/mysql/index.js'
import { freshMysql } from '../../support/mariadb-server.js'

export const BROKEN = 'select * from nowhere_at_all'
/**
 * The isolation level of the open transaction. The server keeps a copy of its list of transactions until nobody has read it
 * for 100 ms, so the copy may be older than the transaction. The statement looks for itself in the list to know.
 */
export async function readIsolation(
  query: (statement: string) => Promise<readonly { readonly [column: string]: unknown }[]>,
): Promise<string> {
  for (let failures = 0; ; ) {
    await query('select sleep(0.12 + rand() * 0.2)')
    try {
      const [row] = await query(`
        select trx_isolation_level as level from information_schema.innodb_trx
        where trx_mysql_thread_id = connection_id() and trx_query like '%${crypto.randomUUID()}%'`)
      if (typeof row?.level === 'string') return row.level
    } catch (error) {
      // The list also has statements of other tests, whose bytes may be no text. Reading it fails then, and works a moment later.
      failures++
      if (failures === 10) throw error
    }
  }
}

/** A database for the ORM, behind a proxy that can cut the line, and a pool of its own for the outbox. */
export async function mysqlDatabase(server: string) {
  const database = await freshMysql(server)
  const proxy = await proxyTo(new URL(database.url))
  const pool = createPool({ uri: database.url, connectionLimit: 10 })
  // Its numbers are what LAST_INSERT_ID() tells, and must not be taken for those of events.
  await pool.query('create table business (id varchar(64) primary key, n int not null auto_increment unique)')
  return {
    url: proxy.url,
    world: {
      createStore: (table: string) => mysqlStore(pool, { table }),
      afterFailure: 'goes on',
      committed: async (ids: readonly string[]) => {
        const [rows] = await pool.query<RowDataPacket[]>('select id from business where id in (?)', [
          [...ids],
        ])
        return rows.map((row) => row.id as string)
      },
      loseCommit: async () => proxy.arm(),
      dispose: async () => {},
    } as const,
    async drop() {
      await pool.end()
      await proxy.close()
      await database.drop()
    },
  }
}

export type Database = Awaited<ReturnType<typeof mysqlDatabase>>

/** Once armed, it passes the next COMMIT on and cuts the line before the answer. */
async function proxyTo(target: URL) {
  let isArmed = false
  const server = net.createServer((client) => {
    const upstream = net.connect(Number(target.port), target.hostname)
    let isCommitting = false
    client.on('data', (data) => {
      if (isArmed && /commit/i.test(data.toString('latin1'))) {
        isArmed = false
        isCommitting = true
      }
      upstream.write(data)
    })
    upstream.on('data', (data) => (isCommitting ? void client.destroy() : void client.write(data)))
    const ends = [client, upstream]
    for (const end of ends) {
      end.setNoDelay(true)
      end.on('error', () => {})
      end.on('close', () => ends.map((one) => one.destroy()))
    }
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const url = new URL(target)
  url.port = String((server.address() as net.AddressInfo).port)
  return {
    url: url.href,
    arm: () => {
      isArmed = true
    },
    close: async () => void server.close(),
  }
}
