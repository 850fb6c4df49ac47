import type { IncomingMessage } from '../../bus/transport.js'
import { BrokerUnavailableError } from '../../core/errors.js'
import { hasName } from './errors.js'

/** What the bus needs of a client library. One file for each of them. */
export interface KafkaDriver {
  /**
   * Creates the topic where it is missing. Resolves when its partitions have leaders, so that it takes messages. Rejects
   * after `timeoutMs`, and leaves the connection: one that is silent may stay so, while a new one would be answered.
   */
  prepareTopic(topic: TopicPlan, timeoutMs: number): Promise<void>
  openProducer(timeoutMs: number): Promise<KafkaProducer>
  /** Joins the group. Rejects when that fails; whatever fails later is told by `onEnd`. */
  openFeed(plan: FeedPlan, events: FeedEvents): Promise<Feed>
}

export interface TopicPlan {
  readonly name: string
  readonly partitions: number
  /** -1: what the broker has as its default. */
  readonly replicas: number
}

/** Of the topics that are created: an event of a megabyte fits, with its headers. Kafka's own default is a bit less. */
export const TOPIC_SETTINGS = [{ name: 'max.message.bytes', value: '2097152' }]

export interface KafkaRecord {
  readonly key: Buffer
  readonly value: Buffer
  /** By their names. */
  readonly headers: ReadonlyMap<Buffer, Buffer>
  /** What it takes in a batch, at most. */
  readonly bytes: number
}

/**
 * Good for one `send` at a time, until one fails: the sequence numbers of the clients are not to be trusted after that,
 * and a broker drops what has a number that it has seen.
 */
export interface KafkaProducer {
  send(topic: string, records: readonly KafkaRecord[]): Promise<void>
  /** Ends a `send` under way, which may or may not have reached the broker. Never rejects. */
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
  /** In the order of each partition. */
  onRecords(records: readonly FetchedRecord[]): void
  /** Resolves when there is room for more. */
  room(): Promise<void>
  /** The partitions are about to be dealt out anew: the last moment to commit. */
  onRebalance(): void
  /** From now on everything comes again from what is committed. */
  onAssigned(): void
  /** The coordinator of the group has heard of this member. */
  onAlive(): void
  /** Nothing more comes from this feed. */
  onEnd(error: unknown): void
}

export interface Feed {
  /** The next offset of each of these partitions that the group has not handled. */
  commit(offsets: ReadonlyMap<number, bigint>): Promise<void>
  /** Leaves the group. Never rejects. */
  close(): Promise<void>
}

/** Closes what was opened for the work at its end or after so long; then again at its end, since it may open it anew. */
export async function withinTime(
  timeoutMs: number,
  work: Promise<void>,
  close: () => Promise<unknown>,
): Promise<void> {
  const leave = () => void close().catch(() => {})
  let timer: NodeJS.Timeout | undefined
  const over = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      reject(new BrokerUnavailableError('Kafka', 'does not answer'))
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

/** A new topic is there before the brokers know of it, and who leads it. `leaders` asks them. */
export async function waitForLeaders(
  topic: string,
  leaders: () => Promise<readonly number[]>,
): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      const found = await leaders()
      if (found.length > 0 && !found.includes(NO_LEADER)) return
      throw new BrokerUnavailableError('Kafka', `has no leader for a partition of the topic ${topic}`)
    } catch (error) {
      const isYoung =
        error instanceof BrokerUnavailableError ||
        ['UNKNOWN_TOPIC_OR_PARTITION', 'LEADER_NOT_AVAILABLE'].some((name) => hasName(error, name)) ||
        String(error).includes('Unknown topic')
      if (!isYoung || attempt === LEADER_TRIES) throw error
      await new Promise((resolve) => setTimeout(resolve, LEADER_WAIT_MS))
    }
  }
}

/** As the Java client does it, so that producers of all languages agree where a key lives. */
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
