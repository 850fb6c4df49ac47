import {
  AftercommitError,
  CommitUnknownError,
  StoreNotMigratedError,
  TransactionEndedError,
  TransactionRolledBackError,
} from '../../core/errors.js'
import { hideFromInspection } from '../../core/redact.js'
import { isA } from '../../core/unknown.js'
import type { Limits } from '../../diagnosis.js'
import type {
  AppendOptions,
  AppendResult,
  AppendRow,
  Claim,
  ClaimRequest,
  EventFilter,
  InstanceRecord,
  Migration,
  OrderedClaimRequest,
  OutboxStore,
  Settlement,
  StoreCapabilities,
  UnhandledRequest,
  UnroutableRequest,
} from '../../store.js'
import { HostedClient, type TransactionSession } from '../../transaction.js'
import * as appending from './append.js'
import * as claiming from './claim.js'
import { Connections } from './connections.js'
import * as diagnosing from './diagnose.js'
import { connectionOf, isDiskFailure, type SqliteDatabase, sqliteErrorIn } from './driver.js'
import { explained, settlementError } from './errors.js'
import { hostedStatements, isOpen, type Statements } from './hosted.js'
import { inboxStatements } from './inbox.js'
import * as inspecting from './inspect.js'
import { type Names, namesOf } from './names.js'
import * as ordering from './ordered.js'
import * as overviewing from './overview.js'
import { paused, pauseStatements } from './pauses.js'
import { prune, pruneStatements } from './prune.js'
import * as registry from './registry.js'
import { migrate, migrationsFor, pendingMigrations } from './schema.js'
import * as settling from './settle.js'
import { ended } from './transaction.js'
import { unhandled, unhandledStatements } from './unhandled.js'

export interface SqliteStoreOptions {
  /** Name of the events table; the others are named after it. Default `outbox_event`. */
  readonly table?: string
}

/** One writer at a time, whoever it is. One file a concern; this one only puts them together. */
export class SqliteStore<Client extends SqliteDatabase> implements OutboxStore<Client> {
  readonly name = 'sqlite'
  readonly capabilities: StoreCapabilities = {
    durable: true,
    multiProcess: true,
    doorbell: false,
    callerTransactions: true,
    concurrentTransactions: false,
  }
  readonly #connections: Connections<Client>
  readonly #names: Names
  readonly #sql
  #isOpen = false

  constructor(open: () => Client, options: SqliteStoreOptions) {
    this.#names = namesOf(options)
    this.#connections = new Connections(open, (error) => explained(error, this.#names.table))
    this.#sql = {
      append: appending.appendStatements(this.#names),
      claims: claiming.claimStatements(this.#names),
      ordered: ordering.orderedStatements(this.#names),
      unhandled: unhandledStatements(this.#names),
      settles: settling.settleStatements(this.#names),
      registry: registry.registryStatements(this.#names),
      inspect: inspecting.inspectStatements(this.#names),
      overview: overviewing.overviewStatements(this.#names),
      pauses: pauseStatements(this.#names),
      inbox: inboxStatements(this.#names),
      prune: pruneStatements(this.#names),
    }
  }

  async open(): Promise<void> {
    if (this.#isOpen) {
      throw new AftercommitError(
        'STORE_IN_USE',
        'This store is in use by another outbox: give each one a store of its own.',
      )
    }
    this.#isOpen = true
    try {
      await this.#connections.prepare()
      const missing = await this.pendingMigrations()
      // With a newer version some may be missing while a deploy is under way; the first is what all stand on.
      if (missing.some(({ version }) => version === 1)) throw new StoreNotMigratedError()
      // A file that cannot be written is found now, and not by claims that keep failing.
      await this.#connections.write(() => {})
    } catch (error) {
      await this.close()
      throw error
    }
  }

  async close(): Promise<void> {
    this.#isOpen = false
    await this.#connections.close()
  }

  migrate(): Promise<readonly number[]> {
    return this.#connections.write((db) => migrate(db, this.#names))
  }

  migrations(): readonly Migration[] {
    return migrationsFor(this.#names)
  }

  pendingMigrations(): Promise<readonly Migration[]> {
    return this.#connections.read((db) => pendingMigrations(db, this.#names))
  }

  transaction<T>(body: (session: TransactionSession<Client>) => Promise<T>, client?: Client): Promise<T> {
    return this.#connections.transaction(body, client)
  }

  async ensureInTransaction(client: Client): Promise<void> {
    if (client instanceof HostedClient) await this.#insideHosted(client)
    else inside(client)
  }

  isRefusedCommit(error: unknown): boolean {
    const reported = sqliteErrorIn(error)
    return reported !== undefined && !isDiskFailure(reported)
  }

  async append(client: Client, rows: readonly AppendRow[], options: AppendOptions): Promise<AppendResult> {
    // For a client of its own without an await between the question and the statement.
    const db = client instanceof HostedClient ? await this.#insideHosted(client) : inside(client)
    return appending.append(this.#sql.append, db, rows, options).catch(this.#throwExplained)
  }

  async findPresent(client: Client, eventIds: readonly string[]): Promise<ReadonlyMap<string, number>> {
    if (client instanceof HostedClient) return this.#findHosted(client, eventIds)
    const connection = connectionOf(client)
    if (!connection.inTransaction) throw ended(connection)
    return appending.findPresent(this.#sql.append, connection, eventIds)
  }

  async #findHosted(client: HostedClient, eventIds: readonly string[]): Promise<ReadonlyMap<string, number>> {
    const isInside = await isOpen(client)
    const statements = hostedStatements(client, this.#names.table)
    const present = await appending.findPresent(this.#sql.append, statements, eventIds).catch((error) => {
      throw isA(error, TransactionEndedError) ? new CommitUnknownError(error) : error
    })
    if (isInside) return present
    if (eventIds.length > 0 && present.size === 0) throw new TransactionRolledBackError()
    throw new CommitUnknownError(new TransactionEndedError())
  }

  claim(request: ClaimRequest) {
    return claiming.claim(this.#sql.claims, this.#connections, request)
  }

  claimOrdered(request: OrderedClaimRequest) {
    return ordering.claimOrdered(this.#sql.ordered, this.#connections, request)
  }

  claimUnroutable(request: UnroutableRequest) {
    return claiming.claimUnroutable(this.#sql.claims.unroutable, this.#connections, request)
  }

  unhandled(request: UnhandledRequest) {
    return unhandled(this.#sql.unhandled, this.#connections, request)
  }

  settleIfLeased(settlements: readonly Settlement[], keepDone: boolean) {
    const settled = this.#connections.write((db) =>
      settling.settleIfLeased(this.#sql.settles, db, settlements, keepDone),
    )
    return settled.catch((error) => {
      throw settlementError(error)
    })
  }

  renewIfLeased(claims: readonly Claim[], leaseMs: number) {
    return this.#connections.write(
      (db) => settling.renewIfLeased(this.#sql.settles, db, claims, leaseMs),
      'fleeting',
    )
  }

  /** There is no doorbell. */
  async ring(): Promise<void> {}

  heartbeat(instance: InstanceRecord): Promise<readonly string[]> {
    return this.#connections.write((db) => {
      registry.heartbeat(this.#sql.registry, db, instance)
      return paused(this.#sql.pauses, db)
    })
  }

  registerStopped(consumer: InstanceRecord, replaces: string): Promise<readonly string[]> {
    return this.#connections.write((db) => {
      registry.registerStopped(this.#sql.registry, db, consumer, replaces)
      return paused(this.#sql.pauses, db)
    })
  }

  overview() {
    return this.#connections.read((db) => overviewing.overview(this.#sql.overview, db))
  }

  /** With other limits than the usual ones: for tests. */
  diagnose(limits?: Limits) {
    const subject = { store: this, connections: this.#connections, names: this.#names }
    return diagnosing.diagnose(subject, limits)
  }

  instances(seenWithinMs: number) {
    return this.#connections.read((db) => registry.instances(this.#sql.registry, db, seenWithinMs))
  }

  stats() {
    return this.#connections.read((db) => inspecting.stats(this.#sql.inspect, db))
  }

  async list(filter: EventFilter) {
    const records = await this.#connections.read((db) => inspecting.list(this.#sql.inspect, db, filter))
    return records.map(hideFromInspection)
  }

  retryDead(filter: EventFilter) {
    return this.#connections.write((db) => inspecting.retryDead(this.#sql.inspect, db, filter))
  }

  discardDead(filter: EventFilter) {
    return this.#connections.write((db) => inspecting.discardDead(this.#sql.inspect, db, filter))
  }

  pruneDone(olderThanMs: number, limit: number) {
    return prune(this.#sql.prune.done, this.#connections, olderThanMs, limit)
  }

  async pruneInstances(olderThanMs: number): Promise<void> {
    const sql = this.#sql.registry
    if (!(await this.#connections.read((db) => registry.hasGone(sql, db, olderThanMs)))) return
    await this.#connections.write((db) => registry.pruneInstances(sql, db, olderThanMs))
  }

  paused() {
    return this.#connections.read((db) => paused(this.#sql.pauses, db))
  }

  pause(type: string): Promise<void> {
    return this.#connections.write((db) => db.run(this.#sql.pauses.pause, { type }))
  }

  resume(type: string): Promise<boolean> {
    return this.#connections.write((db) => db.all(this.#sql.pauses.resume, { type }).length > 0)
  }

  async markProcessed(client: Client, handler: string, eventId: string): Promise<boolean> {
    const db = client instanceof HostedClient ? await this.#insideHosted(client) : inside(client)
    try {
      return (await db.all(this.#sql.inbox.mark, { handler, eventId })).length > 0
    } catch (error) {
      throw explained(error, this.#names.table)
    }
  }

  isProcessed(handler: string, eventId: string): Promise<boolean> {
    return this.#connections.read((db) => db.all(this.#sql.inbox.contains, { handler, eventId }).length > 0)
  }

  pruneProcessed(olderThanMs: number, limit: number) {
    return prune(this.#sql.prune.marks, this.#connections, olderThanMs, limit)
  }

  readonly #throwExplained = (error: unknown): never => {
    throw explained(error, this.#names.table)
  }

  async #insideHosted(client: HostedClient): Promise<Statements> {
    if (!(await isOpen(client))) throw new TransactionEndedError()
    return hostedStatements(client, this.#names.table)
  }
}

/** Asked right before each statement: nothing is ever written outside of a transaction. */
function inside(client: SqliteDatabase): Statements {
  const connection = connectionOf(client)
  if (!connection.inTransaction) throw new TransactionEndedError()
  return connection
}
