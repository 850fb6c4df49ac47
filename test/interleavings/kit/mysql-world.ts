import mysql from 'mysql2'
import type { OutboxStore } from '../../../src/store.js'
import { mysqlStore } from '../../../src/stores/mysql/index.js'
import { waitingThreads } from '../../support/lock-waits.js'
import { freshMysql } from '../../support/mariadb-server.js'
import { flavor } from '../../support/mysql-flavor.js'
import { gate } from '../../support/until.js'
import { LEASE_MS, type OpenCall, type World } from './world.js'

/** By key, of committed rows: a search would wait for every row that somebody else has just written. */
const LEASED = 'select seq from outbox_event where event_type = ? and locked_until > utc_timestamp(6)'
const AGE = 'update outbox_event set locked_until = locked_until - interval ? microsecond where seq in (?)'

export async function mysqlWorld(serverUrl: string): Promise<World> {
  const database = await freshMysql(serverUrl)
  const ends: (() => Promise<unknown>)[] = []
  const newPool = (connectionLimit: number) => {
    const pool = mysql.createPool({ uri: database.url, connectionLimit })
    ends.push(() => pool.promise().end())
    return pool
  }
  const watcher = newPool(3)
  const observer = mysqlStore(watcher) as unknown as OutboxStore
  await observer.migrate()
  const opened: OutboxStore[] = []
  return {
    name: flavor,
    observer,
    duplicatesLock: true,
    timesPassed: () => 0,
    now: () => Date.now(),
    seat: async () => {
      const pool = newPool(5)
      const threads = new Set<number>()
      const statements = new Statements()
      pool.on('connection', (connection) => {
        threads.add(connection.threadId)
        statements.watch(connection)
      })
      const store = mysqlStore(pool) as unknown as OutboxStore
      await store.open({ onRing: () => {}, onWarning: () => {} })
      opened.push(store)
      return {
        store,
        isWaiting: async () =>
          (await waitingThreads(watcher.promise())).some((thread) => threads.has(thread)),
        open: (call) => statements.hold(() => call(store), 'COMMIT'),
        stop: (call, n) => statements.hold(() => call(store), n),
      }
    },
    passTime: async (type) => {
      const [rows] = await watcher.promise().query<mysql.RowDataPacket[]>(LEASED, [type])
      const seqs = rows.map(({ seq }) => seq)
      if (seqs.length > 0) await watcher.promise().query(AGE, [2_000 * LEASE_MS, seqs])
    },
    clear: async () => {
      await watcher.promise().query('truncate outbox_event')
    },
    close: async () => {
      for (const store of opened) await store.close()
      await Promise.all(ends.map((end) => end()))
      await database.drop()
    },
  }
}

type Send = (options: unknown, ...rest: unknown[]) => unknown

/** What the store sends for one session; one of these statements can be kept back. */
class Statements {
  #held: { left: number | 'COMMIT'; reached(): void; readonly goOn: Promise<void> } | null = null

  watch(connection: mysql.PoolConnection): void {
    for (const method of ['query', 'execute'] as const) {
      const send = connection[method].bind(connection) as Send
      Object.assign(connection, { [method]: this.#watched(send) })
    }
  }

  #watched(send: Send): Send {
    return (options, ...rest) => {
      const held = this.#held
      if (!held || !this.#isTheOne((options as { sql?: unknown } | undefined)?.sql))
        return send(options, ...rest)
      held.reached()
      void held.goOn.then(() => void send(options, ...rest))
    }
  }

  #isTheOne(sql: unknown): boolean {
    if (!this.#held) return false
    if (this.#held.left === 'COMMIT') return String(sql).startsWith('COMMIT')
    return --this.#held.left === 0
  }

  hold<T>(call: () => Promise<T>, before: number | 'COMMIT'): OpenCall<T> {
    const reached = gate()
    const goOn = gate()
    this.#held = { left: before, reached: reached.open, goOn: goOn.opened }
    const answer = call()
    return {
      ran: Promise.race([reached.opened, answer]),
      commit: () => {
        this.#held = null
        goOn.open()
        return answer
      },
    }
  }
}
