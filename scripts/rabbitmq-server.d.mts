import type { PrivateServer } from './private-server.mjs'

export interface RabbitmqOptions {
  /** A free one below 32000 when left out. It stays the same over `restart()`. */
  port?: number
  /** Further lines of rabbitmq.conf: `{ max_message_size: 1024 }`. */
  settings?: Record<string, string | number>
}

export interface RabbitmqServer extends PrivateServer {
  /** User and password `guest`, virtual host `/`. */
  readonly url: string
  /** Runs rabbitmqctl on this server, and answers what it printed; rejects when it fails. */
  control(...args: string[]): Promise<string>
}

/**
 * Starts a server of its own in a temporary folder. It ends with its owner (normal exit, uncaught error, SIGINT,
 * SIGTERM, SIGHUP; not SIGKILL), and so does the name service that Erlang needs. Where it is missing and the user is
 * root it is installed, with one line that says so. Rejects when it cannot be had.
 */
export function startRabbitmq(options?: RabbitmqOptions): Promise<RabbitmqServer>

/** Where the programs are; undefined when they are not on this machine. */
export function findRabbitmq(): { server: string; control: string; epmd: string } | undefined
