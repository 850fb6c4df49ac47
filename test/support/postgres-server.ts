import {
  type PostgresOptions,
  type PostgresServer,
  startPostgres as startServer,
} from '../../scripts/postgres-server.mjs'

export type { PostgresOptions, PostgresServer }

/** A PostgreSQL server of the test's own, to restart or to kill. Without fsync unless asked. */
export function startPostgres(options: PostgresOptions = {}): Promise<PostgresServer> {
  return startServer({ fsync: false, ...options })
}
