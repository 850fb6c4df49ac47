import type { EventEnvelope } from './core/envelope.js'
import type { StoredEvent } from './core/stored-event.js'

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
  /** Event types that are not accepted, whatever `names` and `prefixes` say; `*` for all types. */
  readonly excludedTypes?: readonly string[]
}

/** Whether the filter accepts no row, so that a claim is not necessary. */
export function acceptsNothing(filter: TypeFilter): boolean {
  const { names, prefixes, excludedTypes = [] } = filter
  const isExcluded = (name: string) => excludedTypes.includes(name.slice(name.indexOf('\x1f') + 1))
  return (prefixes.length === 0 && names.every(isExcluded)) || excludesAll(filter)
}

/** Version that stands for the newest version. */
export const ANY_VERSION = 2_147_483_647

export function excludesAll({ excludedTypes }: TypeFilter): boolean {
  return excludedTypes?.includes('*') ?? false
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

/** Rows that the store may write later in the transaction. */
export interface LateAppend {
  readonly rows: readonly AppendRow[]
  readonly leaseMs: number
  /** Called when the rows are sent to the database. */
  sent(): void
  /** Called when the rows are written, with the `seq` of each event id, or with a lower limit for all of them. */
  written(seqs: ReadonlyMap<string, number> | number): void
}

/** An open transaction as a store or an integration gives it to the outbox. */
export interface TransactionSession<Client> {
  readonly client: Client
  /**
   * True when a `ROLLBACK TO` may have happened that nobody reported. The outbox then asks the database, before
   * the commit, which of its rows are still there; only those are handed to handlers from memory.
   */
  mayHaveLostRows(): boolean
  /**
   * Rings the doorbell right behind the commit, on the same connection, where the driver can: that is the shortest
   * way to another process. It is not part of the transaction, and its failure means nothing.
   */
  ringAfterCommit?(ring: {
    lowestSeq(): number
    /** There is one row to announce, and it is not written yet. */
    readonly onlyLate: boolean
  }): void
  /**
   * Writes rows before the application's next statement, or together with the COMMIT: publishing then costs no round
   * trip. Only for ids that nobody can have used, since a duplicate fails the transaction. May answer with a promise
   * when too much is waiting.
   */
  appendLater?(append: LateAppend): Promise<void> | undefined
  /**
   * Runs the body inside a savepoint; rolls back to it and rethrows when the body throws. Statements of the body go
   * through the session it is given, which for some drivers has a handle of its own.
   */
  savepoint<T>(body: (inner: TransactionSession<Client>) => Promise<T>): Promise<T>
}

/**
 * Writes events, and claims, settles and renews them for delivery. Every method may reject while the database cannot be
 * reached; the caller tries again. All times are the database's own. A method that takes several items handles all of
 * them in one statement.
 */
export interface EventStore<Client = unknown> {
  readonly name: string
  readonly capabilities: StoreCapabilities
  /** Absent in stores whose statements do not wait for open transactions. */
  readonly sessions?: StoreSessions | undefined

  /** Takes the store's own connections that a worker needs. Rejects if the pool is too small for them. */
  open(events: StoreEvents): Promise<void>
  /** Releases the connections that open() took. Can be called twice. */
  close(): Promise<void>

  /**
   * begin → body → commit, on a connection of the pool or on the caller's idle client. Resolves only after the commit was
   * confirmed. Rejects with the body's own error after a rollback, with TransactionRolledBackError if COMMIT was answered
   * by ROLLBACK, and with CommitUnknownError if the answer was lost.
   */
  transaction<T>(body: (session: TransactionSession<Client>) => Promise<T>, client?: Client): Promise<T>
  /** Whether the error means that the server refused the commit, so that the transaction is certainly rolled back. */
  isRefusedCommit(error: unknown): boolean
  /** Rejects with TransactionEndedError if the caller's client is not inside a transaction. */
  ensureInTransaction(client: Client): Promise<void>

  /** Writes the rows in the client's transaction. Wherever a store expects a client, it also accepts a HostedClient. */
  append(client: Client, rows: readonly AppendRow[], options: AppendOptions): Promise<AppendResult>
  /** Returns the `seq` of those of these events that the transaction still holds. Rejects in a failed transaction. */
  findPresent(client: Client, eventIds: readonly string[]): Promise<ReadonlyMap<string, number>>

  /** Leases due rows without an ordering key. */
  claim(request: ClaimRequest): Promise<ClaimResult>
  /** Leases due rows with an ordering key, in the order of each key. */
  claimOrdered(request: OrderedClaimRequest): Promise<OrderedClaimResult>
  /**
   * Writes the outcomes of deliveries whose lease still exists, and returns the ids of these events. An event whose id is
   * missing had lost its lease, and nothing changed for it. Without `keepDone`, handled rows are deleted.
   */
  settleIfLeased(settlements: readonly Settlement[], keepDone: boolean): Promise<ReadonlySet<string>>
  /** Returns the ids of the events whose lease was renewed. An expired lease cannot be renewed. */
  renewIfLeased(claims: readonly Claim[], leaseMs: number): Promise<ReadonlySet<string>>
  /** Wakes the claimers of other processes. A ring is only a hint and never part of a transaction. */
  ring(ring: Ring): Promise<void>
}

/** Knows the consumers of the table: which instances exist, which types they handle, and which types are paused. */
export interface StoreRegistry {
  /** Registers a running instance or renews its heartbeat. Returns the paused event types, as paused() does. */
  heartbeat(instance: InstanceRecord): Promise<readonly string[]>
  /**
   * Registers a consumer without a heartbeat: a manual consumer, or an instance that stops. Removes the row with the id
   * `replaces`. Consumers with the same `id` share one row, which counts as stopped: `counters` are added to its
   * counters, everything else is replaced. Returns the paused event types, as paused() does.
   */
  registerStopped(consumer: InstanceRecord, replaces: string): Promise<readonly string[]>
  instances(seenWithinMs: number): Promise<readonly SeenInstance[]>
  /** Deletes the rows of instances that were not seen for this time. Their counters are kept. */
  pruneInstances(olderThanMs: number): Promise<void>
  /** Leases rows that no consumer can handle. */
  claimUnroutable(request: UnroutableRequest): Promise<readonly ClaimedRow[]>
  /**
   * Reads one page of the pending rows (due or delayed, leased or free) without locks, and returns the types that
   * `known` does not accept. The cost is bounded by `limit`, however many rows are pending.
   */
  unhandled(request: UnhandledRequest): Promise<UnhandledPage>

  /** Returns the event types that no instance may start to handle; `*` for all types. */
  paused(): Promise<readonly string[]>
  pause(eventType: string): Promise<void>
  /** Returns false if the type was not paused. */
  resume(eventType: string): Promise<boolean>
}

/** Creates the tables, and lets operators look at events and change them. */
export interface StoreAdmin {
  /** Applies the missing migrations; safe if several instances start at once. Returns the versions applied. */
  migrate(): Promise<readonly number[]>
  /** Returns all migrations as SQL that can be run by other means and twice. */
  migrations(): readonly Migration[]
  /** Returns the migrations that migrate() would apply. */
  pendingMigrations(): Promise<readonly Migration[]>
  /** Looks for causes that slow down or stop an outbox, and says what to do. Works if the schema is missing or old. */
  diagnose(): Promise<readonly Finding[]>

  stats(): Promise<StoreStats>
  /** Says which tables hide rows from this user, or may hide them. Null if none does. Left out by stores that hide none. */
  hiddenRows?(): Promise<string | null>
  overview(): Promise<StoreOverview>
  list(filter: EventFilter): Promise<readonly EventRecord[]>
  /** Makes dead rows due again with a fresh attempt count. Returns their ids. */
  retryDead(filter: EventFilter): Promise<readonly string[]>
  /** Deletes dead rows. Returns their ids. */
  discardDead(filter: EventFilter): Promise<readonly string[]>
  /** Deletes at most `limit` rows that were handled longer ago. Returns the number; fewer than `limit` means no more are left. */
  pruneDone(olderThanMs: number, limit: number, signal?: AbortSignal): Promise<number>
}

/** Remembers which handler has processed which event, for handlers that must have an effect exactly once. */
export interface InboxStore<Client = unknown> {
  /**
   * Records in the transaction that this handler has processed the event. Returns false if it had processed the event
   * before. Waits for a concurrent transaction that records the same.
   */
  markProcessed(client: Client, handler: string, eventId: string): Promise<boolean>
  isProcessed(handler: string, eventId: string): Promise<boolean>
  /** Deletes at most `limit` older marks. Returns the number; fewer than `limit` means no more are left. */
  pruneProcessed(olderThanMs: number, limit: number, signal?: AbortSignal): Promise<number>
}

/** All that an outbox needs of one database. */
export interface OutboxStore<Client = unknown>
  extends EventStore<Client>,
    StoreRegistry,
    StoreAdmin,
    InboxStore<Client> {}
