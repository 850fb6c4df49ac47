import type { PrivateServer } from './private-server.mjs'

export interface NatsOptions {
  /** A free one below 32000 when left out. It stays the same over `restart()`. */
  port?: number
  /** Further settings, as in the configuration file: `{ max_payload: 1_048_576 }`. */
  settings?: Record<string, unknown>
}

export interface NatsServer extends PrivateServer {
  /** No user, no password; JetStream with file storage. Messages may have 8 MB. */
  readonly url: string
}

/**
 * Starts a server of its own in a temporary folder. It ends with its owner (normal exit, uncaught error, SIGINT,
 * SIGTERM, SIGHUP; not SIGKILL). Where it is missing and the user is root it is installed, with one line that says so.
 * Rejects when it cannot be had.
 */
export function startNats(options?: NatsOptions): Promise<NatsServer>

/** Where the binary is; undefined when it is not on this machine. */
export function findNats(): string | undefined
