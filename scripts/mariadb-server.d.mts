export interface MariadbOptions {
  /** A free one below 32000 when left out. It stays the same over `restart()`. */
  port?: number
  /** Default true. Off, a commit survives the death of the server but not of the machine: fine for tests. */
  fsync?: boolean
  /** Further server settings, as on the command line: `{ 'max-connections': 50 }`. */
  settings?: Record<string, string | number>
}

export interface MariadbServer extends AsyncDisposable {
  /** User `root`, database `test`, no password. */
  readonly url: string
  readonly port: number
  /** The server; undefined when it is down. */
  readonly pid: number | undefined
  /** The last lines the server wrote. */
  readonly log: string
  /** Starts again after `kill()`, with the same port and data. Does nothing when it runs. */
  start(): Promise<void>
  /** Orderly shutdown, then start: connections break, committed data stays. */
  restart(): Promise<void>
  /** SIGKILL: a crash. The data stays; `start()` or `restart()` recovers it. */
  kill(): Promise<void>
  /** Shuts down and deletes the data. Safe to call twice, and after `kill()`. */
  stop(): Promise<void>
}

/**
 * Starts a server of its own in a temporary folder. It ends with its owner (normal exit, uncaught error, SIGINT,
 * SIGTERM, SIGHUP; not SIGKILL). Where it is missing and the user is root it is installed, with one line that says so.
 * Rejects when it cannot be had.
 */
export function startMariadb(options?: MariadbOptions): Promise<MariadbServer>

/** Where the binaries are; undefined when they are not on this machine. */
export function findMariadb(): { server: string; install: string; client: string } | undefined
