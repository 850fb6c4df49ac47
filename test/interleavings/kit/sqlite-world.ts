import type { OutboxStore } from '../../../src/store.js'
import { sqliteStore } from '../../../src/stores/sqlite/index.js'
import { type SqliteDriver, sqliteFolder } from '../../support/sqlite-drivers.js'
import { turns } from '../../support/until.js'
import { LEASE_MS, type World } from './world.js'

/** Enough for whatever need not wait for its turn to write: SQLite answers at once. */
const ENOUGH_TURNS = 5

/** Several connections on one file. Who finds a transaction open waits for its turn, and is seen to wait. */
export async function sqliteWorld({ name, open }: SqliteDriver): Promise<World> {
  const folder = sqliteFolder()
  const file = folder.file('interleavings.db')
  const stores: OutboxStore[] = []
  const newStore = () => {
    const store = sqliteStore(() => open(file)) as unknown as OutboxStore
    stores.push(store)
    return store
  }
  const observer = newStore()
  await observer.migrate()
  const hand = open(file)
  hand.exec('PRAGMA busy_timeout = 5000')
  const age = hand.prepare(
    `update outbox_event set locked_until = locked_until - :ms
      where event_type = :type and locked_until > unixepoch('subsec') * 1000`,
  ) as unknown as { run(params: object): unknown }
  return {
    name: `SQLite by ${name}`,
    observer,
    duplicatesLock: false,
    timesPassed: () => 0,
    now: () => Date.now(),
    seat: async () => {
      const store = newStore()
      await store.open({ onRing: () => {}, onWarning: () => {} })
      return {
        store,
        isWaiting: async () => {
          await turns(ENOUGH_TURNS)
          return true
        },
      }
    },
    // Through a store, so that it waits for its turn like any other writer.
    passTime: (type) =>
      observer.transaction(async () => {}).then(() => void age.run({ type, ms: 2 * LEASE_MS })),
    clear: async () => void hand.exec('delete from outbox_event'),
    close: async () => {
      for (const store of stores) await store.close()
      hand.close()
      folder.remove()
    },
  }
}
