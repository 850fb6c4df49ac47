export interface PostgresOptions {
  /** `newest`: the newest server there is. `oldest`: the oldest version that aftercommit supports. */
  version?: 'newest' | 'oldest'
  /** A free one below 32000 when left out. It stays the same over `restart()`. */
  port?: number
  /** Default true. Off, a commit survives the death of the server but not of the machine: fine for tests. */
  fsync?: boolean
  /** Further server settings, as in postgresql.conf. */
  settings?: Record<string, string | number | boolean>
}

export interface PostgresServer extends AsyncDisposable {
  /** Superuser `postgres`, database `postgres`, no password. */
  readonly url: string
  readonly port: number
  readonly major: number
  /** The postmaster; undefined when the server is down. */
  readonly pid: number | undefined
  /** The last lines the server wrote. */
  readonly log: string
  /** Starts again after `kill()`, with the same port and data. Does nothing when it runs. */
  start(): Promise<void>
  /** Fast shutdown, then start: connections break, committed data stays. */
  restart(): Promise<void>
  /** SIGKILL to the server and all its processes: a crash. The data stays; `start()` or `restart()` recovers it. */
  kill(): Promise<void>
  /** Shuts down and deletes the data. Safe to call twice, and after `kill()`. */
  stop(): Promise<void>
}

export const OLDEST_MAJOR: number

/**
 * Starts a server of its own in a temporary folder. It ends with its owner (normal exit, uncaught error,
 * SIGINT, SIGTERM, SIGHUP; not SIGKILL). Rejects, with the server's own words, when it cannot be had.
 */
export function startPostgres(options?: PostgresOptions): Promise<PostgresServer>

/** Where the binaries are; undefined when that version cannot be had on this machine. */
export function findPostgres(version?: 'newest' | 'oldest'): { bin: string; major: number } | undefined
