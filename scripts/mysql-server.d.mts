import type { PrivateServer } from './private-server.mjs'

export interface MysqlOptions {
  /** Default: a free port below 32000. The port stays the same over `restart()`. */
  port?: number
  /** Default true. Without fsync, a commit survives the death of the server but not of the machine. */
  fsync?: boolean
  /** Further server settings, as on the command line: `{ 'max-connections': 50 }`. */
  settings?: Record<string, string | number>
}

export interface MysqlServer extends PrivateServer {
  /** User `root`, database `test`, no password. */
  readonly url: string
}

/**
 * Starts a private MySQL server in a temporary folder. The server ends with its owner (normal exit, uncaught error,
 * SIGINT, SIGTERM, SIGHUP; not SIGKILL). A MySQL of the machine is used first. On a Debian machine without one, the
 * server of Debian `sid` is unpacked into `.tmp` of the repository; nothing is installed. Rejects if neither is possible.
 */
export function startMysql(options?: MysqlOptions): Promise<MysqlServer>

/** Returns the command of the MySQL server that is installed on this machine; undefined if there is none. */
export function findMysql(): { readonly command: readonly string[] } | undefined

/** Whether this machine has a MySQL server, or can unpack one. */
export function hasMysql(): boolean
