import type { PrivateServer } from './private-server.mjs'

export interface MariadbOptions {
  /** A free one below 32000 when left out. It stays the same over `restart()`. */
  port?: number
  /** Default true. Off, a commit survives the death of the server but not of the machine: fine for tests. */
  fsync?: boolean
  /** Further server settings, as on the command line: `{ 'max-connections': 50 }`. */
  settings?: Record<string, string | number>
  /** The server of this machine, which is the default, or that of Debian sid, unpacked into a folder. */
  release?: 'installed' | 'newest'
}

export interface MariadbServer extends PrivateServer {
  /** User `root`, database `test`, no password. */
  readonly url: string
}

/**
 * Starts a server of its own in a temporary folder. It ends with its owner (normal exit, uncaught error, SIGINT,
 * SIGTERM, SIGHUP; not SIGKILL). Where it is missing and the user is root it is installed, with one line that says so.
 * Rejects when it cannot be had.
 */
export function startMariadb(options?: MariadbOptions): Promise<MariadbServer>

/** Where the binaries are; undefined when they are not on this machine. */
export function findMariadb(): { server: string; install: string; client: string } | undefined
