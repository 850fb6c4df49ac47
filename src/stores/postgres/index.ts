import { InvalidSettingError } from '../../core/errors.js'
import { readSettings } from '../../core/settings.js'
import type { OutboxStore } from '../../store.js'
import type { PostgresDriver } from './driver.js'
import { type PgClient, PgDriver, type PgPool } from './drivers/pg.js'
import { type PGlite, type PGliteClient, PGliteDriver } from './drivers/pglite.js'
import { type PostgresJs, type PostgresJsClient, PostgresJsDriver } from './drivers/postgres-js.js'
import { PostgresStore, type PostgresStoreOptions } from './store.js'

export type { PgClient, PgPool } from './drivers/pg.js'
export type { PGlite, PGliteClient } from './drivers/pglite.js'
export type { PostgresJs, PostgresJsClient } from './drivers/postgres-js.js'
export type { PostgresStoreOptions } from './store.js'

/** The type of a transaction's handle, as the driver itself gives it to its users. */
export type ClientOf<Source> = Source extends {
  begin: (options: string, body: (client: infer Client) => never) => unknown
}
  ? Client
  : Source extends { transaction: (body: (client: infer Client) => never) => unknown }
    ? Client
    : Source extends { connect: { (): Promise<infer Client>; (callback: never): void } }
      ? Client
      : Source extends { connect(): Promise<infer Client> }
        ? Client
        : never

/**
 * The PostgreSQL store on what the application already has: a `pg` Pool, a postgres.js `sql`, or a PGlite
 * database. A worker takes three connections of the pool for itself (two without the doorbell).
 */
export function postgresStore<Source extends object>(
  source: Source,
  given: PostgresStoreOptions = {},
): OutboxStore<ClientOf<Source>> {
  const options = readSettings('postgresStore()', given, ['schema', 'table', 'doorbell', 'prepare'])
  return new PostgresStore(driverFor(source), options) as unknown as OutboxStore<ClientOf<Source>>
}

function driverFor(source: object): PostgresDriver<never> {
  const has = (method: string) => typeof (source as Record<string, unknown>)[method] === 'function'
  if (has('begin') && has('unsafe') && has('reserve')) {
    return new PostgresJsDriver<PostgresJsClient>(source as PostgresJs) as unknown as PostgresDriver<never>
  }
  if (has('transaction') && has('exec') && has('listen')) {
    return new PGliteDriver<PGliteClient>(source as PGlite) as unknown as PostgresDriver<never>
  }
  if (has('connect') && has('query') && 'options' in source) {
    return new PgDriver<PgClient>(source as PgPool) as unknown as PostgresDriver<never>
  }
  throw new InvalidSettingError(
    'store',
    'postgresStore() takes a pg Pool, a postgres.js sql, or a PGlite database',
  )
}
