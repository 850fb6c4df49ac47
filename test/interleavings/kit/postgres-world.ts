import pg from 'pg'
import type { OutboxStore } from '../../../src/store.js'
import { postgresStore } from '../../../src/stores/postgres/index.js'
import { freshDatabase } from '../../support/database.js'
import { LEASE_MS, type OpenCall, type World } from './world.js'

const WAITING = `select 1 from pg_stat_activity where application_name = $1 and wait_event_type = 'Lock'`
const AGE = `update outbox_event set locked_until = locked_until - $2 * interval '1 ms'
  where event_type = $1 and locked_until > clock_timestamp()`

export async function postgresWorld(name: string, serverUrl: string): Promise<World> {
  const database = await freshDatabase(serverUrl)
  const ends: (() => Promise<unknown>)[] = []
  const newPool = (label: string, max: number) => {
    const pool = new pg.Pool({ connectionString: database.url, max, application_name: label })
    pool.on('error', () => {})
    ends.push(() => pool.end())
    return pool
  }
  const watcher = newPool('watcher', 2)
  const observer = postgresStore(watcher, { doorbell: false }) as unknown as OutboxStore
  await observer.migrate()
  const opened: OutboxStore[] = []
  return {
    name,
    observer,
    duplicatesLock: false,
    timesPassed: () => 0,
    now: () => Date.now(),
    seat: async (label) => {
      const pool = newPool(label, 4)
      const store = postgresStore(pool, { doorbell: false }) as unknown as OutboxStore
      await store.open({ onRing: () => {}, onWarning: () => {} })
      opened.push(store)
      return {
        store,
        isWaiting: async () => ((await watcher.query(WAITING, [label])).rowCount ?? 0) > 0,
        open: await opener(newPool(label, 1)),
      }
    },
    passTime: async (type) => {
      await watcher.query(AGE, [type, 2 * LEASE_MS])
    },
    clear: async () => {
      await watcher.query('truncate outbox_event')
    },
    close: async () => {
      for (const store of opened) await store.close()
      await Promise.all(ends.map((end) => end()))
      await database.drop()
    },
  }
}

/** Each call is one statement, which commits by itself; here it is run inside of a transaction of the test's. */
async function opener(pool: pg.Pool) {
  const client = await pool.connect()
  // As the store sets its own connection for claims.
  await client.query('set enable_bitmapscan = off; set enable_sort = off')
  client.release()
  const store = postgresStore(pool, { doorbell: false, prepare: true }) as unknown as OutboxStore
  return <T>(call: (store: OutboxStore) => Promise<T>): OpenCall<T> => {
    const ran = pool.query('begin').then(() => call(store))
    return {
      ran,
      commit: async () => {
        const answer = await ran
        await pool.query('commit')
        return answer
      },
    }
  }
}
