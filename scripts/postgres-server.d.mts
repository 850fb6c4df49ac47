import type { PrivateServer } from './private-server.mjs'

export interface PostgresOptions {
  /** `newest`: the newest server there is. `oldest`: the oldest version that aftercommit supports. */
  version?: 'newest' | 'oldest'
  /** A free one below 32000 when left out. It stays the same over `restart()`. */
  port?: number
  /** Default true. Off, a commit survives the death of the server but not of the machine: fine for tests. */
  fsync?: boolean
  /** Default false. On, the URL leads through a Unix socket instead of TCP. */
  socket?: boolean
  /** Further server settings, as in postgresql.conf. */
  settings?: Record<string, string | number | boolean>
}

export interface PostgresServer extends PrivateServer {
  /** Superuser `postgres`, database `postgres`, no password. */
  readonly url: string
  readonly major: number
}

export const OLDEST_MAJOR: number

/**
 * Starts a server of its own in a temporary folder. It ends with its owner (normal exit, uncaught error,
 * SIGINT, SIGTERM, SIGHUP; not SIGKILL). Rejects, with the server's own words, when it cannot be had.
 */
export function startPostgres(options?: PostgresOptions): Promise<PostgresServer>

/** Where the binaries are; undefined when that version cannot be had on this machine. */
export function findPostgres(version?: 'newest' | 'oldest'): { bin: string; major: number } | undefined
