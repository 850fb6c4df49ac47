import { holdsEverySession } from '../../ambient.js'
import {
  AftercommitError,
  CommitUnknownError,
  NestedTransactionError,
  PoolTooSmallError,
  StoreNotMigratedError,
  TransactionEndedError,
  TransactionRolledBackError,
} from '../../core/errors.js'
import { hideFromInspection, redactDriverError } from '../../core/redact.js'
import type { Limits } from '../../diagnosis.js'
import type {
  AppendOptions,
  AppendRow,
  Claim,
  ClaimRequest,
  EventFilter,
  InstanceRecord,
  Migration,
  OrderedClaimRequest,
  OutboxStore,
  Ring,
  Settlement,
  StoreCapabilities,
  StoreEvents,
  StoreSessions,
  UnhandledRequest,
  UnroutableRequest,
} from '../../store.js'
import { HostedClient, type LateAppend, type TransactionSession } from '../../transaction.js'
import { checkEncoding, checkRights, checkRowSecurity, checkSchema, hiddenRows } from './access.js'
import * as appending from './append.js'
import * as claiming from './claim.js'
import { behindPooler, Connection } from './connections.js'
import * as diagnosing from './diagnose.js'
import { Doorbell } from './doorbell.js'
import { type PostgresDriver, type Query, refusedCommit } from './driver.js'
import { explained, settlementError } from './errors.js'
import { hostedQuery, isSameTransaction, serverErrorIn } from './hosted.js'
import { inboxStatements } from './inbox.js'
import * as inspecting from './inspect.js'
import { type Names, namesOf } from './names.js'
import * as ordering from './ordered.js'
import * as overviewing from './overview.js'
import { pauseStatements } from './pauses.js'
import { Pruner } from './prune.js'
import { Ranges } from './ranges.js'
import * as registry from './registry.js'
import { isThere, migrate, migrationsFor, pendingMigrations } from './schema.js'
import * as settling from './settle.js'
import { unhandled, unhandledStatements } from './unhandled.js'

export interface PostgresStoreOptions {
  /** Schema of the tables; default: the first of the connection's search_path. */
  readonly schema?: string
  /** Name of the events table; the others are named after it. Default `outbox_event`. */
  readonly table?: string
  /** LISTEN/NOTIFY on a connection of its own. Default true; falls back to polling where it cannot work. */
  readonly doorbell?: boolean
  /** Named prepared statements. Default: used by workers after a probe found that they work. */
  readonly prepare?: boolean
}

/** Connections that the started outboxes on one pool keep for themselves. */
const reserved = new WeakMap<object, number>()

const EVERYTHING = 2_147_483_647

/** PostgreSQL 14–18. One file a concern; this one only puts them together. */
export class PostgresStore<Client> implements OutboxStore<Client> {
  readonly name = 'postgres'
  readonly capabilities: StoreCapabilities
  readonly #driver: PostgresDriver<Client>
  readonly #names: Names
  readonly #options: PostgresStoreOptions
  readonly #claims: Connection
  readonly #settles: Connection
  readonly #doorbell: Doorbell
  readonly #done: Pruner
  readonly #marks: Pruner
  readonly #ranges: Ranges
  readonly #floor = new appending.SeqFloor()
  /** Null when nobody has asked yet. */
  #hasRanges: boolean | Promise<boolean> | null = null
  readonly #sql
  /** How many connections it holds. */
  #opened = 0
  #unguard: (() => void) | null = null
  #events: StoreEvents | null = null

  constructor(driver: PostgresDriver<Client>, options: PostgresStoreOptions) {
    this.#driver = driver
    this.#options = options
    this.#names = namesOf(options)
    driver.prepare = options.prepare ?? false
    driver.pooler = options.prepare === false
    driver.channel = (options.doorbell ?? true) ? this.#names.channel : null
    const anyClient = driver as unknown as PostgresDriver<unknown>
    // A claim that a crash of the server undoes is made again; only outcomes must last.
    this.#claims = new Connection(anyClient, this.#ensureFree, {
      synchronous_commit: 'off',
      // Rows come in the order of an index; sorting a whole backlog for each batch would be a disaster.
      enable_bitmapscan: 'off',
      enable_sort: 'off',
    })
    this.#settles = new Connection(anyClient, this.#ensureFree)
    this.#doorbell = new Doorbell(anyClient, this.#names.channel, this.#settles.query)
    this.capabilities = {
      durable: true,
      multiProcess: driver.pooled,
      doorbell: options.doorbell ?? true,
      callerTransactions: true,
      concurrentTransactions: driver.pooled,
    }
    this.#done = new Pruner(this.#pool, this.#names.events, 'done_at', 'status = 1')
    this.#marks = new Pruner(this.#pool, this.#names.inbox, 'processed_at')
    this.#ranges = new Ranges(this.#names, { claim: this.#claim, settle: this.#settle })
    this.#sql = {
      ...appending.appendStatements(this.#names),
      claims: this.#either((ranged) => claiming.claimStatements(this.#names, ranged)),
      ordered: ordering.orderedStatements(this.#names),
      unhandled: unhandledStatements(this.#names),
      settles: settling.settleStatements(this.#names),
      registry: this.#either((ranged) => registry.registryStatements(this.#names, ranged)),
      inspect: this.#either((ranged) => inspecting.inspectStatements(this.#names, ranged)),
      overview: this.#either((ranged) => overviewing.overviewStatement(this.#names, ranged)),
      pauses: pauseStatements(this.#names),
      inbox: inboxStatements(this.#names),
    }
  }

  get sessions(): StoreSessions {
    const { source, pooled, maxConnections } = this.#driver
    return pooled
      ? { source, free: maxConnections - (reserved.get(source) ?? 0), isOnly: false }
      : { source, free: 1, isOnly: true }
  }

  async open(events: StoreEvents): Promise<void> {
    if (this.#opened) {
      throw new AftercommitError(
        'STORE_IN_USE',
        'This store is in use by another outbox: give each one a store of its own.',
      )
    }
    const own = this.capabilities.doorbell ? 3 : 2
    const taken = reserved.get(this.#driver.source) ?? 0
    if (this.#driver.pooled && this.#driver.maxConnections <= taken + own) {
      throw new PoolTooSmallError(this.#driver.maxConnections, taken + own + 1)
    }
    await checkEncoding(this.#pool)
    await checkRights(this.#pool, this.#names)
    await this.#checkMigrated()
    this.#hasRanges = null
    await this.#isRanged()
    this.#opened = own
    reserved.set(this.#driver.source, taken + own)
    this.#events = events
    this.#guard()
    try {
      const anyClient = this.#driver as unknown as PostgresDriver<unknown>
      const pooler = this.#driver.pooled && (await behindPooler(anyClient))
      if (this.#driver.pooled) this.#driver.prepare = this.#options.prepare ?? !pooler
      this.#driver.pooler ||= pooler
      await Promise.all([this.#claims.open(!pooler), this.#settles.open(!pooler)])
      if (pooler) {
        events.onWarning(
          'connections go through a pooler in transaction mode: no prepared statements and no doorbell, new events are found by polling',
        )
      } else if (this.capabilities.doorbell) await this.#doorbell.open(events)
    } catch (error) {
      await this.close()
      throw redactDriverError(error)
    }
  }

  async close(): Promise<void> {
    reserved.set(this.#driver.source, (reserved.get(this.#driver.source) ?? 0) - this.#opened)
    this.#opened = 0
    this.#hasRanges = null
    await this.#doorbell.close()
    await Promise.all([this.#claims.close(), this.#settles.close()])
    this.#unguard?.()
    this.#unguard = null
    this.#events = null
  }

  async migrate(): Promise<readonly number[]> {
    this.#ensureFree()
    await checkEncoding(this.#pool)
    const applied = await migrate(this.#driver, this.#names).catch(this.#explain)
    this.#hasRanges = null
    return applied
  }

  migrations(): readonly Migration[] {
    return migrationsFor(this.#names)
  }

  pendingMigrations(): Promise<readonly Migration[]> {
    return pendingMigrations(this.#pool, this.#names)
  }

  transaction<T>(body: (session: TransactionSession<Client>) => Promise<T>, client?: Client): Promise<T> {
    if (client === undefined && holdsEverySession(this.sessions)) return Promise.reject(this.#nested())
    this.#guard()
    return this.#driver.transaction((session) => {
      if (session.late) {
        const late = new appending.LateAppends(this.#sql, this.#floor, session.late, this.#reason)
        // Not assigned as a literal: see PgTransaction.
        const appendLater = (append: LateAppend) => late.add(append)
        session.appendLater = appendLater
      }
      return body(session)
    }, client)
  }

  /** A lost idle connection must not end the process, whether the outbox is started or only publishes. */
  #guard(): void {
    this.#unguard ??= this.#driver.guard((error) =>
      this.#events?.onWarning('a database connection was lost', redactDriverError(error)),
    )
  }

  async ensureInTransaction(client: Client): Promise<void> {
    // The server refuses a savepoint, which is all that this is asked for with an ORM.
    if (client instanceof HostedClient) return
    if (!(await this.#driver.inTransaction(client).catch(this.#explain))) throw new TransactionEndedError()
  }

  isRefusedCommit(error: unknown): boolean {
    return refusedCommit(serverErrorIn(error))
  }

  append(client: Client, rows: readonly AppendRow[], options: AppendOptions) {
    return appending.append(this.#sql, this.#on(client), rows, options)
  }

  async findPresent(client: Client, eventIds: readonly string[]): Promise<ReadonlyMap<string, number>> {
    const present = await appending.findPresent(this.#sql, this.#on(client), eventIds)
    if (!(client instanceof HostedClient) || (eventIds.length > 0 && present.size === eventIds.length))
      return present
    if (await isSameTransaction(client)) return present
    throw eventIds.length > 0 && present.size === 0
      ? new TransactionRolledBackError()
      : new CommitUnknownError(new TransactionEndedError())
  }

  /** The statement is on its way when this returns: whoever was rung for waits for it. */
  claim(request: ClaimRequest) {
    const claim = (ranged: boolean) =>
      claiming.claim(this.#sql.claims(ranged), this.#claim, ranged ? this.#ranges : null, request)
    const ranged = this.#isRanged()
    return typeof ranged === 'boolean' ? claim(ranged) : ranged.then(claim)
  }

  claimOrdered(request: OrderedClaimRequest) {
    return ordering.claimOrdered(this.#sql.ordered, this.#claim, request)
  }

  async claimUnroutable(request: UnroutableRequest) {
    return claiming.claimUnroutable(this.#sql.claims(await this.#isRanged()), this.#claim, request)
  }

  /** On the connection of the claims, whose settings make PostgreSQL use the indexes in their order. */
  unhandled(request: UnhandledRequest) {
    return unhandled(this.#sql.unhandled, this.#claim, request)
  }

  settleIfLeased(settlements: readonly Settlement[], keepDone: boolean) {
    const settled = settling.settleIfLeased(
      this.#sql.settles,
      this.#settle,
      this.#ranges,
      settlements,
      keepDone,
    )
    return settled.catch((error) => {
      throw settlementError(error)
    })
  }

  renewIfLeased(claims: readonly Claim[], leaseMs: number) {
    return settling.renewIfLeased(this.#sql.settles, this.#settle, this.#ranges, claims, leaseMs)
  }

  async ring(ring: Ring): Promise<void> {
    if (this.capabilities.doorbell) await this.#doorbell.ring(ring)
  }

  async heartbeat(instance: InstanceRecord) {
    const sql = this.#sql.registry(await this.#isRanged())
    return registry.heartbeat(sql, this.#doorbell.query, instance).catch(this.#explain)
  }

  async registerStopped(consumer: InstanceRecord, replaces: string) {
    const sql = this.#sql.registry(await this.#isRanged())
    return registry.registerStopped(sql, this.#doorbell.query, consumer, replaces).catch(this.#explain)
  }

  async overview() {
    this.#ensureFree()
    return overviewing.overview(this.#sql.overview(await this.#isRanged()), this.#driver).catch(this.#explain)
  }

  /** With other limits than the usual ones: for tests. */
  diagnose(limits?: Limits) {
    const taken = reserved.get(this.#driver.source) ?? 0
    const own = this.capabilities.doorbell ? 3 : 2
    const subject = {
      store: this,
      driver: this.#driver as unknown as PostgresDriver<unknown>,
      names: this.#names,
      doorbell: this.capabilities.doorbell,
      prepare: this.#options.prepare,
      taken,
      needed: taken + (this.#opened ? 0 : own) + 1,
    }
    return diagnosing.diagnose(subject, limits)
  }

  async instances(seenWithinMs: number) {
    return registry.instances(this.#sql.registry(await this.#isRanged()), this.#settle, seenWithinMs)
  }

  async stats() {
    return inspecting.stats(this.#sql.inspect(await this.#isRanged()), this.#settle)
  }

  hiddenRows(): Promise<string | null> {
    return hiddenRows(this.#settle, this.#names)
  }

  async list(filter: EventFilter) {
    const records = await inspecting.list(this.#sql.inspect(await this.#isRanged()), this.#pool, filter)
    return records.map(hideFromInspection)
  }

  async retryDead(filter: EventFilter): Promise<readonly string[]> {
    const rows = await this.#pool(
      this.#sql.inspect(await this.#isRanged()).retry,
      inspecting.filterParams(filter, EVERYTHING),
    )
    return rows.map((row) => row[0] as string)
  }

  async discardDead(filter: EventFilter): Promise<readonly string[]> {
    const rows = await this.#pool(
      this.#sql.inspect(await this.#isRanged()).discard,
      inspecting.filterParams(filter, EVERYTHING),
    )
    return rows.map((row) => row[0] as string)
  }

  pruneDone(olderThanMs: number, limit: number, signal?: AbortSignal) {
    return this.#done.prune(olderThanMs, limit, signal)
  }

  async pruneInstances(olderThanMs: number): Promise<void> {
    await this.#settle(this.#sql.registry(await this.#isRanged()).prune, [olderThanMs])
  }

  async paused(): Promise<readonly string[]> {
    const rows = await this.#settle(this.#sql.pauses.paused, [])
    return rows.map((row) => row[0] as string)
  }

  async pause(eventType: string): Promise<void> {
    await this.#pool(this.#sql.pauses.pause, [eventType])
  }

  async resume(eventType: string): Promise<boolean> {
    return (await this.#pool(this.#sql.pauses.resume, [eventType])).length > 0
  }

  async markProcessed(client: Client, handler: string, eventId: string): Promise<boolean> {
    return (await this.#on(client)(this.#sql.inbox.mark, [handler, eventId])).length > 0
  }

  async isProcessed(handler: string, eventId: string): Promise<boolean> {
    return (await this.#pool(this.#sql.inbox.contains, [handler, eventId])).length > 0
  }

  pruneProcessed(olderThanMs: number, limit: number, signal?: AbortSignal) {
    return this.#marks.prune(olderThanMs, limit, signal)
  }

  /** Statements for a schema with ranges, and for one that a newer version has not migrated yet. */
  #either<T>(build: (ranged: boolean) => T): (ranged: boolean) => T {
    const known = new Map<boolean, T>()
    return (ranged) => {
      const sql = known.get(ranged) ?? build(ranged)
      known.set(ranged, sql)
      return sql
    }
  }

  /** No for an answer is kept only while the store is open: others see by its instance that it does not know ranges. */
  #isRanged(): boolean | Promise<boolean> {
    if (this.#hasRanges === null) {
      const looking = this.#lookForRanges()
      const found = (ranged: boolean) => {
        if (this.#hasRanges === looking) this.#hasRanges = ranged || (this.#opened > 0 ? false : null)
      }
      looking.then(found, () => {
        if (this.#hasRanges === looking) this.#hasRanges = null
      })
      this.#hasRanges = looking
    }
    return this.#hasRanges
  }

  /** A store that was not opened asks about row level security too: it would take hidden events for none. */
  async #lookForRanges(): Promise<boolean> {
    if (this.#opened === 0) await checkRowSecurity(this.#pool, this.#names)
    return isThere(this.#pool, this.#names.ranges)
  }

  readonly #pool: Query = async (sql, params) => {
    this.#ensureFree()
    return this.#driver.query(sql, params).catch(this.#explain)
  }

  /** Throws if a statement outside of the caller's transaction would wait for its end. */
  readonly #ensureFree = (): void => {
    if (holdsEverySession(this.sessions)) throw this.#nested()
  }

  #nested(): NestedTransactionError {
    return new NestedTransactionError(
      this.#driver.pooled
        ? `the pool has ${this.#driver.maxConnections} connections, and none is free besides that of the transaction`
        : 'PGlite has one session, which the transaction holds',
    )
  }

  readonly #claim: Query = (sql, params) =>
    this.#claims.query(sql, params).catch((error) => {
      // After a crash or a failover the count of ranges may have gone back.
      this.#ranges.countAtNone = -1
      return this.#explain(error)
    })
  readonly #settle: Query = (sql, params) => this.#settles.query(sql, params).catch(this.#explain)

  #on(client: Client): Query {
    if (client instanceof HostedClient) return hostedQuery(client, this.#explain)
    return (sql, params) => this.#driver.queryOn(client, sql, params).catch(this.#explain)
  }

  readonly #reason = (error: unknown): unknown => explained(error, this.#names)

  readonly #explain = (error: unknown): never => {
    throw this.#reason(error)
  }

  /** With a newer version some of them may be missing while a deploy is under way; the first is what all stand on. */
  async #checkMigrated(): Promise<void> {
    const missing = await this.pendingMigrations()
    if (!missing.some(({ version }) => version === 1)) return
    await checkSchema(this.#pool, this.#names)
    throw new StoreNotMigratedError()
  }
}
