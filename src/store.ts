import type { EventEnvelope } from './core/envelope.js'
import type { StoredEvent } from './core/stored-event.js'
import type { TransactionSession } from './transaction.js'

/** What a store can do beyond the common contract. Suites skip by flag, never by database name. */
export interface StoreCapabilities {
  /** Rows outlive the process. */
  readonly durable: boolean
  /** Several processes can work on one table. */
  readonly multiProcess: boolean
  /** `ring` wakes the pollers of other processes. */
  readonly doorbell: boolean
  /** A caller may pass a transaction that it began itself. */
  readonly callerTransactions: boolean
  /** Several transactions can be open at the same time. */
  readonly concurrentTransactions: boolean
}

/** Sessions of the database that transactions and other statements of a store share. */
export interface StoreSessions {
  /** What the sessions belong to. Stores on the same pool have the same source. */
  readonly source: object
  /** Sessions that started outboxes do not keep for themselves. */
  readonly free: number
  /** Whether the database has no other session, so that transactions of an ORM hold it as well. */
  readonly isOnly: boolean
}

export const EventStatus = { NEW: 0, DONE: 1, RETRY: 2, DEAD: 3 } as const
export type EventStatusName = keyof typeof EventStatus

/** One event to be written. With a token the row is born leased to that token. */
export interface AppendRow {
  readonly event: EventEnvelope
  readonly token: string | null
  /** First attempt not before this much later, by the database's clock. */
  readonly delayMs?: number | undefined
  /** First attempt not before this moment. */
  readonly deliverAt?: Date | undefined
}

export interface AppendOptions {
  readonly leaseMs: number
  /** `error`: if any id exists, nothing is written. `ignore`: the others are written. */
  readonly onDuplicate: 'error' | 'ignore'
}

export interface AppendResult {
  /** `seq` of each row that was written, by event id. */
  readonly seqs: ReadonlyMap<string, number>
  readonly duplicates: readonly string[]
}

/** Which events an instance can take: exact names, each up to a version, and name prefixes. */
export interface TypeFilter {
  /** `type`, or `aggregateType` + U+001F + `type` for a handler bound to one aggregate type. */
  readonly names: readonly string[]
  /** For each name the newest version that can be decoded. */
  readonly versions: readonly number[]
  /** `order.` for the pattern `order.*`, `''` for `*`; with the aggregate type in front like a name, when bound to one. */
  readonly prefixes: readonly string[]
  /** Types that are left alone whatever the rest says: they are paused. */
  readonly except?: readonly string[]
}

/** True when no row can pass, so that nobody need look. */
export function acceptsNothing(filter: TypeFilter): boolean {
  const { names, prefixes, except = [] } = filter
  const isLeftOut = (name: string) => except.includes(name.slice(name.indexOf('\x1f') + 1))
  return (prefixes.length === 0 && names.every(isLeftOut)) || isAllPaused(filter)
}

/** In place of a version: the newest one. */
export const ANY_VERSION = 2_147_483_647

export function isAllPaused({ except }: TypeFilter): boolean {
  return except !== undefined && except.length > 0 && except.includes('*')
}

export interface ClaimRequest {
  /** Unique for this claim; a settle counts only with it. */
  readonly token: string
  readonly leaseMs: number
  readonly limit: number
  /** Bytes that the claimed rows may hold, as the database measures them. The first row is claimed at any size. */
  readonly maxBytes: number
  readonly accept: TypeFilter
  /** Rows that were never tried are looked for from this `seq` on. */
  readonly fromSeq: number
  /** Of the delayed and retried rows only those that came due within this time; null for all. */
  readonly dueWithinMs?: number | null
  /**
   * Take at most this many rows whose lease ran out, because their process died or lost it. One is tried alone, and
   * charged when it loses that lease too. Several are a group, of rows that were in none and never alone.
   */
  readonly suspects: number
  /** Rows younger than this are left alone. */
  readonly skipRecentMs: number
  /** Only rows never tried are wanted; `highSeq` and `nextDueMs` may be left out. What is cheapest, asked most often. */
  readonly freshOnly?: boolean
}

export interface ClaimedRow extends StoredEvent {
  readonly seq: number
  /** Failed deliveries and leases lost by a crash so far. */
  readonly attempts: number
  readonly handledBy: readonly string[]
  readonly token: string
  /** Its last owner vanished while holding it. */
  readonly suspect: boolean
  /** Bytes of the content that this row loaded into memory. Default: `payloadSize`. */
  readonly bytes?: number
  /**
   * Reason why the row cannot be handled, in words that complete "This event cannot be handled: …". The row becomes dead
   * with this reason before an interceptor, a handler or a relay sees it. Content that is too large is left out, and `checkedRow()` finds all other reasons.
   */
  readonly invalid?: string | undefined
}

export interface ClaimResult {
  readonly rows: readonly ClaimedRow[]
  /** The highest `seq` drawn so far, committed or not; null when nobody looked. */
  readonly highSeq: number | null
  /** True when the scan saw everything there was; false when the limit or the bytes cut it short. */
  readonly complete: boolean
  /** The same of delayed and retried rows alone; left out when that is not known. */
  readonly dueComplete?: boolean
  /** Past the last row never tried that was taken: where a scan for more of them goes on. */
  readonly nextSeq: number
  /** How long until the next delayed row, of whatever type, is due; null when there is none or nobody looked. */
  readonly nextDueMs: number | null
  /** Some ordering key has rows to be claimed, now or later; left out when nobody looked. */
  readonly hasOrdered?: boolean
}

/** Rows of ordering keys: a key is entered through its first pending row only, and claimed as a whole run. */
export interface OrderedClaimRequest {
  readonly token: string
  readonly leaseMs: number
  /** Keys to claim at most. */
  readonly keys: number
  /** Rows of one key to claim at most: its first ones, as far as they are due. The same for every claimer. */
  readonly runLength: number
  /** Rows that may be claimed; the run of the first key is taken whatever its length. */
  readonly limit: number
  /** Bytes that the claimed rows may hold, as the database measures them. The first key is claimed at any size. */
  readonly maxBytes: number
  readonly accept: TypeFilter
  /** Keys are looked at in their order, from behind this one on; '' for all. */
  readonly afterKey: string
  /** Take at most this many keys whose first row lost its lease; of such a key only that row, tried alone. */
  readonly suspects: number
  /** Rows younger than this are left alone. */
  readonly skipRecentMs: number
}

export interface OrderedClaimResult {
  /** Runs one after the other, each in the order of `seq`. */
  readonly rows: readonly ClaimedRow[]
  /** Where the next scan goes on; null when this one has seen the last key. */
  readonly afterKey: string | null
  /** How long until one of the first rows that this scan met is due; null when none of them waits. */
  readonly nextDueMs: number | null
}

export interface UnroutableRequest {
  readonly token: string
  readonly leaseMs: number
  readonly limit: number
  /** What any instance can handle; everything else is unroutable. */
  readonly known: TypeFilter
  readonly olderThanMs: number
  /**
   * Bytes that the claimed rows may hold besides their payloads, which are not loaded. The first row is claimed at any
   * size. Default `UNROUTABLE_BYTES`.
   */
  readonly maxBytes?: number | undefined
}

export const UNROUTABLE_BYTES = 64 * 1024 * 1024

export interface UnhandledRequest {
  /** Types that any registered consumer can handle. */
  readonly known: TypeFilter
  /** Younger events are left out. */
  readonly olderThanMs: number
  /** Most pending rows to read from each index. */
  readonly limit: number
  /** Where the last page ended; null for the first page. */
  readonly after: string | null
}

export interface UnhandledPage {
  /** Event types of rows on this page that `known` does not accept. */
  readonly eventTypes: readonly string[]
  /** Where the next page begins; null after the last page. */
  readonly after: string | null
}

export interface Claim {
  readonly eventId: string
  readonly token: string
  /** As the claim told it: a store may find the row faster by it. Left out when no claim brought the row. */
  readonly seq?: number | undefined
}

/** One failed call of a handler, as kept with the row. The store adds the time. */
export interface Failure {
  readonly handler: string | null
  readonly instance: string
  readonly message: string
}

/** The outcome of one delivery. Counts only while the row still carries the token. */
export type Settlement = Claim &
  (
    | { readonly outcome: 'done' }
    | {
        readonly outcome: 'retry' | 'dead'
        /** Why it failed; an empty one leaves the last one as it is. */
        readonly error: string
        readonly failures: readonly Failure[]
        readonly handledBy: readonly string[]
        readonly delayMs: number
        /** How many attempts this outcome adds. */
        readonly attempts: number
        /** Dead, and its ordering key waits until somebody retries or discards it. */
        readonly halts?: boolean
      }
    /** Given back unhandled; no attempt is counted. */
    | { readonly outcome: 'release'; readonly delayMs: number }
  )

export interface InstanceRecord {
  readonly id: string
  readonly host: string
  readonly pid: number
  readonly version: string
  /** Handler names by route (`order.placed`, `order.*`, …). */
  readonly handlers: Readonly<Record<string, readonly string[]>>
  readonly accept: TypeFilter
  readonly counters: InstanceCounters
}

export interface InstanceCounters {
  readonly done: number
  readonly failed: number
  readonly dead: number
}

export interface SeenInstance extends InstanceRecord {
  readonly startedAt: Date
  readonly lastSeenAt: Date
  readonly stoppedAt: Date | null
}

export interface StoreStats {
  readonly pending: number
  readonly dead: number
  /** Sum of the counters of all instances, flushed with their heartbeats. */
  readonly counters: InstanceCounters
  /** Age of the oldest event that is due and not settled; 0 when there is none. */
  readonly oldestLagMs: number
}

/** What waits and what is dead, by type, and who holds what: for people. It counts rows, so it is not free. */
export interface StoreOverview {
  /** Those that have pending or dead events, most of them first. */
  readonly types: readonly TypeBacklog[]
  /** Instances with live leases. One that is not registered is shown all the same. */
  readonly leases: readonly InstanceLeases[]
}

export interface TypeBacklog {
  readonly eventType: string
  readonly pending: number
  readonly dead: number
  /** Age of its oldest event that is due and not settled; 0 when there is none. */
  readonly oldestLagMs: number
}

export interface InstanceLeases {
  /** The id that the instance is registered with. */
  readonly instance: string
  readonly count: number
}

/** What a look at the database has shown. */
export interface Finding {
  /** What was looked at, in a few words: `long transactions`. */
  readonly check: string
  readonly level: 'ok' | 'warning' | 'problem'
  /** What was seen, in one sentence without payloads or passwords. */
  readonly says: string
  /** What to do about it; left out when there is nothing to do. */
  readonly advice?: string
}

/** A row as people look at it. */
export interface EventRecord extends StoredEvent {
  readonly seq: number
  readonly status: EventStatusName
  readonly attempts: number
  readonly handledBy: readonly string[]
  readonly failures: readonly (Failure & { readonly at: Date })[]
  readonly lastError: string | null
  readonly lockedBy: string | null
  readonly lockedUntil: Date | null
  readonly availableAt: Date
  readonly createdAt: Date
  readonly doneAt: Date | null
}

export interface EventFilter {
  readonly status?: EventStatusName | undefined
  readonly eventIds?: readonly string[] | undefined
  readonly eventType?: string | undefined
  readonly afterSeq?: number | undefined
  readonly limit?: number | undefined
}

export interface Migration {
  readonly version: number
  readonly name: string
  readonly sql: string
}

/**
 * What a ring of the doorbell says, only ever a hint: the lowest `seq` that is new, that there is something new in an
 * ordering key, or (null) that it is worth looking at everything, also at what is paused.
 */
export type Ring = number | 'ordered' | null

export interface StoreEvents {
  onRing(ring: Ring): void
  /** A problem that the store mends by itself, or that the user should know of. */
  onWarning(message: string, error?: unknown): void
}

/**
 * One database's SQL. Every method may reject while the database cannot be reached; the caller tries again.
 * All times are the database's own. Methods that take several items do so in one statement.
 */
export interface EventStore<Client = unknown> {
  readonly name: string
  readonly capabilities: StoreCapabilities
  /** Left out by stores whose statements do not wait for open transactions. */
  readonly sessions?: StoreSessions | undefined

  /** Takes the connections of its own that a worker needs. Rejects when the pool is too small for that. */
  open(events: StoreEvents): Promise<void>
  /** Gives all of them back. Safe to call twice. */
  close(): Promise<void>

  /** Applies what is missing; safe when several instances start at once. Returns the versions applied. */
  migrate(): Promise<readonly number[]>
  /** All of them, as SQL that may be run by other means and twice. */
  migrations(): readonly Migration[]
  /** Those that migrate() would apply. */
  pendingMigrations(): Promise<readonly Migration[]>

  /**
   * begin → body → commit, on a connection of the pool or on the caller's idle client. Resolves only when the
   * commit was confirmed. Rejects with the body's own error after a rollback, with TransactionRolledBackError
   * when COMMIT was answered by ROLLBACK, and with CommitUnknownError when the answer was lost.
   */
  transaction<T>(body: (session: TransactionSession<Client>) => Promise<T>, client?: Client): Promise<T>
  /** The server refused the commit that failed with this: the transaction is rolled back for certain. */
  isRefusedCommit(error: unknown): boolean
  /** Rejects with TransactionEndedError when the caller's client is not inside a transaction. */
  ensureInTransaction(client: Client): Promise<void>

  /** Here and wherever a transaction is meant, `client` may also be a HostedClient. */
  append(client: Client, rows: readonly AppendRow[], options: AppendOptions): Promise<AppendResult>
  /** `seq` of those of these rows that the transaction still holds. Rejects in a failed transaction. */
  findPresent(client: Client, eventIds: readonly string[]): Promise<ReadonlyMap<string, number>>

  claim(request: ClaimRequest): Promise<ClaimResult>
  claimOrdered(request: OrderedClaimRequest): Promise<OrderedClaimResult>
  claimUnroutable(request: UnroutableRequest): Promise<readonly ClaimedRow[]>
  /**
   * Reads one page of the pending rows (due or delayed, leased or free) without locks, and returns the types that
   * `known` does not accept. The cost is bounded by `limit`, however many rows are pending.
   */
  unhandled(request: UnhandledRequest): Promise<UnhandledPage>
  /**
   * Returns the ids that were settled; a missing one had lost its lease, and nothing changed for it.
   * Without `keepDone` done rows are deleted.
   */
  settleIfLeased(settlements: readonly Settlement[], keepDone: boolean): Promise<ReadonlySet<string>>
  /** Returns the ids whose lease goes on; an expired one cannot be renewed. */
  renewIfLeased(claims: readonly Claim[], leaseMs: number): Promise<ReadonlySet<string>>
  /** Wakes the pollers of other processes. Only a hint; never part of a transaction. */
  ring(ring: Ring): Promise<void>

  /** Registers a running instance or renews its heartbeat. Returns the paused event types, as paused() does. */
  heartbeat(instance: InstanceRecord): Promise<readonly string[]>
  /**
   * Registers a consumer without a heartbeat: a manual consumer, or an instance that stops. Removes the row with the id
   * `replaces`. Consumers with the same `id` share one row, which counts as stopped: `counters` are added to its
   * counters, everything else is replaced. Returns the paused event types, as paused() does.
   */
  registerStopped(consumer: InstanceRecord, replaces: string): Promise<readonly string[]>
  instances(seenWithinMs: number): Promise<readonly SeenInstance[]>

  stats(): Promise<StoreStats>
  /** Says which tables hide rows from this user, or may hide them. Null if none does. Left out by stores that hide none. */
  hiddenRows?(): Promise<string | null>
  overview(): Promise<StoreOverview>
  /** Looks for what makes an outbox slow or stops it, and says what to do. Also when the schema is missing or old. */
  diagnose(): Promise<readonly Finding[]>
  list(filter: EventFilter): Promise<readonly EventRecord[]>
  /** Dead rows become due again with a fresh attempt count. Returns their ids. */
  retryDead(filter: EventFilter): Promise<readonly string[]>
  /** Deletes dead rows. Returns their ids. */
  discardDead(filter: EventFilter): Promise<readonly string[]>
  /** Deletes at most `limit` rows that were done longer ago than that. Returns how many; fewer when no more are left. */
  pruneDone(olderThanMs: number, limit: number, signal?: AbortSignal): Promise<number>
  /** Forgets instances not seen for that long; their counters are kept. */
  pruneInstances(olderThanMs: number): Promise<void>

  /** Event types that no instance is to start handling; `*` for all. */
  paused(): Promise<readonly string[]>
  pause(eventType: string): Promise<void>
  /** False when it was not paused. */
  resume(eventType: string): Promise<boolean>

  /** Notes in the transaction that this handler has seen the event; false when it had before. Waits for a concurrent one. */
  markProcessed(client: Client, handler: string, eventId: string): Promise<boolean>
  isProcessed(handler: string, eventId: string): Promise<boolean>
  /** Deletes at most `limit` marks older than that. Returns how many; fewer when no more are left. */
  pruneProcessed(olderThanMs: number, limit: number, signal?: AbortSignal): Promise<number>
}
