import type { PrivateServer } from './private-server.mjs'

export interface KafkaDoor {
  /** Where the broker listens beside its own port. */
  readonly port: number
  /** What it tells those who come this way: the port of a proxy in front of it. */
  readonly advertisedPort: number
}

export interface KafkaOptions {
  /** A free one below 32000 when left out. It stays the same over `restart()`. */
  port?: number
  doors?: readonly KafkaDoor[]
  /** Further settings of the broker, as in server.properties. */
  settings?: Record<string, string | number>
}

export interface KafkaServer extends PrivateServer {
  /** Addresses for a client, without a proxy between. */
  readonly brokers: string[]
}

/** Its version. */
export const KAFKA: string

/**
 * Starts a broker of its own (KRaft, one node) in a temporary folder. It ends with its owner (normal exit, uncaught
 * error, SIGINT, SIGTERM, SIGHUP; not SIGKILL). Fetched from Maven Central once, into `.tmp` of the checkout. Rejects
 * where Java, Maven or Maven Central cannot be had.
 */
export function startKafka(options?: KafkaOptions): Promise<KafkaServer>

/** There is no Java, no Maven, or no way to Maven Central. */
export class KafkaMissing extends Error {}
