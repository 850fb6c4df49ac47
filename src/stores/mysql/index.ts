import { InvalidSettingError } from '../../core/errors.js'
import { readSettings } from '../../core/settings.js'
import type { OutboxStore } from '../../store.js'
import { type CoreConnection, type CorePool, connectionOf } from './driver.js'
import { MysqlStore, type MysqlStoreOptions, type Source } from './store.js'

export type { MysqlStoreOptions } from './store.js'

/** The type of a connection, as the driver itself gives it to its users; with promises one outside of a pool too. */
export type ClientOf<Pool> = Pool extends { getConnection(): Promise<infer Client> }
  ? Client extends { connection: infer Connection }
    ? Connection
    : Client
  : Pool extends { getConnection(callback: infer Callback): unknown }
    ? Callback extends (error: never, client: infer Client) => unknown
      ? Client
      : never
    : never

/**
 * The MySQL and MariaDB store on a pool of mysql2 that the application already has, with promises or with callbacks.
 * A worker takes two connections of the pool for itself. New events of other processes are found by polling.
 */
export function mysqlStore<Pool extends object>(
  pool: Pool,
  given: MysqlStoreOptions = {},
): OutboxStore<ClientOf<Pool>> {
  const options = readSettings('mysqlStore()', given, ['database', 'table'])
  return new MysqlStore(sourceOf<ClientOf<Pool>>(pool), options)
}

function sourceOf<Client>(source: unknown): Source<Client> {
  if (has(source, 'getConnection') && has(source, 'promise')) {
    const pool = source as unknown as CorePool
    return { pool, connect: () => connectionOf(pool) as Promise<Client>, coreOf }
  }
  if (has(source, 'getConnection') && 'pool' in source && has(source.pool, 'getConnection')) {
    const { getConnection } = source
    const connect = () => getConnection.call(source) as Promise<Client>
    return { pool: source.pool as unknown as CorePool, connect, coreOf }
  }
  throw new InvalidSettingError('store', 'mysqlStore() takes a pool of mysql2, made by createPool()')
}

/** A promise connection carries the one with callbacks inside. */
function coreOf(client: unknown): CoreConnection {
  const core = typeof client === 'object' && client && 'connection' in client ? client.connection : client
  if (has(core, 'query') && has(core, 'execute') && has(core, 'addCommand')) {
    return core as unknown as CoreConnection
  }
  throw new InvalidSettingError('tx', 'must be a connection of mysql2')
}

function has<Method extends string>(
  value: unknown,
  method: Method,
): value is object & Record<Method, (...args: never[]) => unknown> {
  return typeof value === 'object' && value !== null && typeof Reflect.get(value, method) === 'function'
}
