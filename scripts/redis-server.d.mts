import type { PrivateServer } from './private-server.mjs'

export interface RedisOptions {
  /** A free one below 32000 when left out. It stays the same over `restart()`. */
  port?: number
  /** Default true: what was answered survives also the machine. Off, it survives the death of the server alone. */
  fsync?: boolean
  /** Further server settings, as on the command line: `{ maxmemory: '64mb' }`. */
  settings?: Record<string, string | number>
}

export interface RedisServer extends PrivateServer {
  /** Without a password. */
  readonly url: string
}

/**
 * Starts a server of its own in a temporary folder, with an append-only file. It ends with its owner (normal exit,
 * uncaught error, SIGINT, SIGTERM, SIGHUP; not SIGKILL). Where it is missing and the user is root it is installed, with
 * one line that says so. Rejects when it cannot be had.
 */
export function startRedis(options?: RedisOptions): Promise<RedisServer>

/** Where the program is; undefined when it is not on this machine. */
export function findRedis(): string | undefined
