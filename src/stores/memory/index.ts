import { readSettings } from '../../core/settings.js'
import { MemoryDatabase } from './database.js'
import { type MemoryStore, type MemoryStoreOptions, memoryStoreOn } from './store.js'

export { MemoryClient } from './client.js'
export type { MemoryStore, MemoryStoreOptions } from './store.js'

/**
 * A store for tests. NOT DURABLE: everything is gone when the process ends, and only this process sees it.
 * Otherwise it behaves as a database does: transactions, savepoints, leases, and several outboxes on one store.
 */
export function memoryStore(options: MemoryStoreOptions = {}): MemoryStore {
  return memoryStoreOn(new MemoryDatabase(), readSettings('memoryStore()', options, ['clock', 'onCall']))
}
