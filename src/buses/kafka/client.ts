import type { IncomingMessage } from '../../bus.js'
import { BrokerUnavailableError } from '../../core/errors.js'
import { BROKER, hasName } from './errors.js'

/** The operations that the bus needs of a client library. Each supported library has a file that implements them. */
export interface KafkaDriver {
  /**
   * Creates a missing topic. Resolves when its partitions have leaders, so that the topic accepts messages. Rejects after
   * `timeoutMs` and closes its connection, because a silent connection may stay silent while a new one works.
   */
  prepareTopic(topic: TopicPlan, timeoutMs: number): Promise<void>
  openProducer(timeoutMs: number): Promise<KafkaProducer>
  /** Joins the group. Rejects if that fails. Later failures are reported to `onEnd`. */
  openFeed(plan: FeedPlan, events: FeedEvents): Promise<Feed>
}

export interface TopicPlan {
  readonly name: string
  readonly partitions: number
  /** Number of replicas, or -1 for the default of the broker. */
  readonly replicas: number
}

/** Settings of created topics. An event of 1 MiB with its headers exceeds the default limit of Kafka. */
export const TOPIC_SETTINGS = [{ name: 'max.message.bytes', value: '2097152' }]

export interface KafkaRecord {
  readonly key: Buffer
  readonly value: Buffer
  /** Values by names. */
  readonly headers: ReadonlyMap<Buffer, Buffer>
  /** Upper bound for the size of the record in a batch. */
  readonly bytes: number
}

/**
 * An idempotent producer that runs one `send` at a time. Do not use it after a failed `send`: the sequence numbers of the
 * client may be wrong, and a broker drops records whose sequence number it has already received.
 */
export interface KafkaProducer {
  send(topic: string, records: readonly KafkaRecord[]): Promise<void>
  /** Ends a pending `send`, whose records may have reached the broker. Never rejects. */
  close(): Promise<void>
}

export interface FeedPlan {
  readonly topic: string
  readonly groupId: string
  readonly sessionMs: number
}

export interface FetchedRecord {
  readonly partition: number
  readonly offset: bigint
  readonly message: IncomingMessage
}

export interface FeedEvents {
  /** Receives records, which are in order within each partition. */
  onRecords(records: readonly FetchedRecord[]): void
  /** Resolves when the consumption can receive more records. */
  capacity(): Promise<void>
  /** The group is about to reassign its partitions. This is the last moment to commit. */
  onRebalance(): void
  /** The partitions were assigned. Records are delivered again from the committed offsets. */
  onAssigned(): void
  /** The coordinator of the group has received a heartbeat of this member. */
  onAlive(): void
  /** The feed has failed and delivers no more records. */
  onEnd(error: unknown): void
}

export interface Feed {
  /** Commits the first unhandled offset of each given partition. */
  commit(offsets: ReadonlyMap<number, bigint>): Promise<void>
  /** Leaves the group. Never rejects. */
  close(): Promise<void>
}

/**
 * Limits the duration of the work, and closes its connections at its end or after `timeoutMs`. After a timeout, closes them again
 * when the work ends, because the work may have opened them again.
 */
export async function withinTime(
  timeoutMs: number,
  work: Promise<void>,
  close: () => Promise<unknown>,
): Promise<void> {
  const leave = () => void close().catch(() => {})
  let timer: NodeJS.Timeout | undefined
  const over = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      reject(new BrokerUnavailableError(BROKER, 'does not answer'))
      work.then(leave, leave)
    }, timeoutMs)
  })
  try {
    await Promise.race([work, over])
  } finally {
    clearTimeout(timer)
    leave()
  }
}

const NO_LEADER = -1
const LEADER_WAIT_MS = 50
const LEADER_TRIES = 100

/** Waits until all partitions of a topic have leaders. A new topic exists before the brokers know its leaders. */
export async function waitForLeaders(
  topic: string,
  leaders: () => Promise<readonly number[]>,
): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      const found = await leaders()
      if (found.length > 0 && !found.includes(NO_LEADER)) return
      throw new BrokerUnavailableError(BROKER, `has no leader for a partition of the topic ${topic}`)
    } catch (error) {
      const isNewTopic =
        error instanceof BrokerUnavailableError ||
        ['UNKNOWN_TOPIC_OR_PARTITION', 'LEADER_NOT_AVAILABLE'].some((name) => hasName(error, name)) ||
        String(error).includes('Unknown topic')
      if (!isNewTopic || attempt === LEADER_TRIES) throw error
      await new Promise((resolve) => setTimeout(resolve, LEADER_WAIT_MS))
    }
  }
}

/** Murmur2 hash of the Java client, so that producers in all languages choose the same partition for a key. */
export function hashOf(key: Uint8Array): number {
  const mix = 0x5bd1e995
  const whole = key.length & ~3
  const byte = (at: number) => key[at] as number
  let hash = 0x9747b28c ^ key.length
  for (let at = 0; at < whole; at += 4) {
    const four = byte(at) | (byte(at + 1) << 8) | (byte(at + 2) << 16) | (byte(at + 3) << 24)
    let word = Math.imul(four, mix)
    word = Math.imul(word ^ (word >>> 24), mix)
    hash = Math.imul(hash, mix) ^ word
  }
  for (let at = key.length - 1; at >= whole; at--) hash ^= byte(at) << (8 * (at - whole))
  if (whole < key.length) hash = Math.imul(hash, mix)
  hash = Math.imul(hash ^ (hash >>> 13), mix)
  return (hash ^ (hash >>> 15)) & 0x7fffffff
}
