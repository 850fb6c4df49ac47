import { holdsEverySession } from '../../ambient.js'
import {
  AftercommitError,
  CommitUnknownError,
  InvalidSettingError,
  NestedTransactionError,
  PoolTooSmallError,
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
  StoreEvents,
  StoreSessions,
  UnhandledRequest,
  UnroutableRequest,
} from '../../store.js'
import { HostedClient, type TransactionSession } from '../../transaction.js'
import * as appending from './append.js'
import * as claiming from './claim.js'
import { Connection, inPool } from './connections.js'
import * as diagnosing from './diagnose.js'
import { type CoreConnection, type CorePool, ignore, type Query, refusedCommit } from './driver.js'
import { denied, explained, migrationError, settlementError, statementFormat } from './errors.js'
import { heldRows, hostedQuery, isOpen, provenInside, serverErrorIn } from './hosted.js'
import * as inboxes from './inbox.js'
import * as inspecting from './inspect.js'
import { type Names, namesOf } from './names.js'
import * as ordering from './ordered.js'
import * as overviewing from './overview.js'
import { pauseStatements } from './pauses.js'
import * as pruning from './prune.js'
import * as registry from './registry.js'
import { missingRights } from './rights.js'
import { migrate, migrationsFor, pendingMigrations } from './schema.js'
import { CHECKED_VARIABLES, checkSession, type Session, sessionOf } from './session.js'
import * as settling from './settle.js'
import { ensureInTransaction, isManaged, ManagedTransaction } from './transaction.js'
import { unhandled, unhandledStatements } from './unhandled.js'
import { isMariadb, versionOf } from './version.js'

export interface MysqlStoreOptions {
  /** Database of the tables; default: the one that the pool's connections use. */
  readonly database?: string
  /** Name of the events table; the others are named after it. Default `outbox_event`. */
  readonly table?: string
}

/** What the user's pool gives out, and what lies inside of it. */
export interface Source<Client> {
  readonly pool: CorePool
  connect(): Promise<Client>
  coreOf(client: Client): CoreConnection
}

/** Connections that the started outboxes on one pool keep for themselves. */
const reserved = new WeakMap<object, number>()
/** What a batch of payloads, or one of the largest, can take. */
const ENOUGH_BYTES = 4_194_304
/** One for claims, one for everything else. */
const OWN_CONNECTIONS = 2

/** MariaDB 10.6+ and MySQL 8. One file a concern; this one only puts them together. */
export class MysqlStore<Client> implements OutboxStore<Client> {
  readonly name = 'mysql'
  readonly capabilities: StoreCapabilities = {
    durable: true,
    multiProcess: true,
    doorbell: false,
    callerTransactions: true,
    concurrentTransactions: true,
  }
  readonly #source: Source<Client>
  readonly #pool: CorePool
  readonly #names: Names
  readonly #database: string | undefined
  readonly #claims: Connection
  readonly #settles: Connection
  readonly #candidates = new claiming.CandidateLimit()
  readonly #sql
  readonly #appends = new WeakMap<object, Promise<unknown>>()
  #opened = false
  #guarding = false
  /** Whether the server is a MariaDB; undefined as long as it was not asked. */
  #mariadb: boolean | undefined

  constructor(source: Source<Client>, options: MysqlStoreOptions) {
    this.#source = source
    this.#pool = source.pool
    this.#names = namesOf(options)
    this.#database = options.database
    this.#claims = new Connection(this.#pool, this.#ensureFree, this.#explain)
    this.#settles = new Connection(this.#pool, this.#ensureFree, this.#explain)
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
      inbox: inboxes.inboxStatements(this.#names),
      prune: pruning.pruneStatements(this.#names),
    }
  }

  get sessions(): StoreSessions {
    return { source: this.#pool, free: this.#most - (reserved.get(this.#pool) ?? 0), isOnly: false }
  }

  async open(events: StoreEvents): Promise<void> {
    if (this.#opened) {
      throw new AftercommitError(
        'STORE_IN_USE',
        'This store is in use by another outbox: give each one a store of its own.',
      )
    }
    const taken = reserved.get(this.#pool) ?? 0
    const most = this.#most
    if (most <= taken + OWN_CONNECTIONS) throw new PoolTooSmallError(most, taken + OWN_CONNECTIONS + 1)
    this.#guard()
    await this.#checkRights()
    await this.#checkMigrated()
    await this.#checkServer(events)
    this.#opened = true
    reserved.set(this.#pool, taken + OWN_CONNECTIONS)
    try {
      await Promise.all([this.#claims.open(), this.#settles.open()])
    } catch (error) {
      await this.close()
      throw error
    }
  }

  async close(): Promise<void> {
    if (this.#opened) reserved.set(this.#pool, (reserved.get(this.#pool) ?? 0) - OWN_CONNECTIONS)
    this.#opened = false
    await Promise.all([this.#claims.close(), this.#settles.close()])
    this.#pool.removeListener('connection', this.#onConnection)
    this.#guarding = false
  }

  async migrate(): Promise<readonly number[]> {
    this.#ensureFree()
    return migrate(this.#pool, this.#names).catch((error) => {
      throw migrationError(error, this.#names)
    })
  }

  migrations(): readonly Migration[] {
    return migrationsFor(this.#names)
  }

  pendingMigrations(): Promise<readonly Migration[]> {
    return this.#alone((query) => pendingMigrations(query, this.#names))
  }

  async transaction<T>(body: (session: TransactionSession<Client>) => Promise<T>, own?: Client): Promise<T> {
    if (own === undefined) this.#ensureFree()
    this.#guard()
    const client = own ?? (await this.#source.connect().catch(this.#explain))
    const connection = this.#source.coreOf(client)
    const session = await this.#sessionOf(connection, own === undefined)
    const transaction = new ManagedTransaction(connection, session)
    try {
      return await transaction.run(client, own !== undefined, body)
    } finally {
      transaction.end()
      if (own === undefined) {
        if (transaction.broken) connection.destroy()
        else connection.release?.()
      }
    }
  }

  async ensureInTransaction(client: Client): Promise<void> {
    await this.#on(client)
  }

  isRefusedCommit(error: unknown): boolean {
    return refusedCommit(serverErrorIn(error))
  }

  /** One at a time in a transaction: one that is undone must not take the rows of another with it. */
  append(client: Client, rows: readonly AppendRow[], options: AppendOptions): Promise<AppendResult> {
    const last = this.#appends.get(client as object) ?? Promise.resolve()
    const result = last.then(() => this.#append(client, rows, options)).catch(this.#explain)
    this.#appends.set(
      client as object,
      result.catch(() => {}),
    )
    return result
  }

  /**
   * MariaDB refuses rows outside of a transaction in the statement itself, and in a managed transaction nothing ends it
   * unseen. Otherwise the rows are held back from claims until the transaction is proven to be open.
   */
  async #append(client: Client, rows: readonly AppendRow[], options: AppendOptions): Promise<AppendResult> {
    const sql = this.#sql.append
    const isHosted = client instanceof HostedClient
    const query = await this.#on(client)
    const isSafe = (!isHosted && isManaged(this.#source.coreOf(client))) || (await this.#isMariadb(query))
    if (isSafe) return appending.append(sql, query, rows, options)
    const held = heldRows(rows)
    const written = held?.rows ?? rows
    const append = () => appending.append(sql, query, written, options)
    const undo = () => this.#alone((own) => appending.removeHeld(sql, own, written))
    const result = await (isHosted ? provenInside(query, append, undo) : append())
    if (held && result.seqs.size > 0)
      await query(sql.free, [JSON.stringify([...result.seqs.keys()]), held.token])
    return result
  }

  /** Asks the server once. */
  async #isMariadb(query: Query): Promise<boolean> {
    this.#mariadb ??= isMariadb(await versionOf(query))
    return this.#mariadb
  }

  /** Asked before the commit: who finds the transaction ended by then does not know what became of it. */
  async findPresent(client: Client, eventIds: readonly string[]): Promise<ReadonlyMap<string, number>> {
    const query = await this.#on(client).catch((error) => {
      throw isA(error, TransactionEndedError) ? new CommitUnknownError(error) : error
    })
    const present = await appending.findPresent(this.#sql.append, query, eventIds).catch(this.#explain)
    if (!(client instanceof HostedClient) || (eventIds.length > 0 && present.size === eventIds.length))
      return present
    if (await isOpen(query)) return present
    throw eventIds.length > 0 && present.size === 0
      ? new TransactionRolledBackError()
      : new CommitUnknownError(new TransactionEndedError())
  }

  claim(request: ClaimRequest) {
    return claiming.claim(this.#sql.claims, this.#claims, this.#candidates, request)
  }

  claimOrdered(request: OrderedClaimRequest) {
    return ordering.claimOrdered(this.#sql.ordered, this.#sql.claims, this.#claims, request)
  }

  claimUnroutable(request: UnroutableRequest) {
    return claiming.claimUnroutable(this.#sql.claims, this.#claims, request)
  }

  unhandled(request: UnhandledRequest) {
    return unhandled(this.#sql.unhandled, this.#settles.query, request)
  }

  settleIfLeased(settlements: readonly Settlement[], keepDone: boolean) {
    const settled = settling.settleIfLeased(this.#sql.settles, this.#settles, settlements, keepDone)
    return settled.catch((error) => {
      throw settlementError(error)
    })
  }

  renewIfLeased(claims: readonly Claim[], leaseMs: number) {
    return settling.renewIfLeased(this.#sql.settles, this.#settles.query, claims, leaseMs)
  }

  /** There is no doorbell; the pollers of others come by themselves. */
  async ring(): Promise<void> {}

  async heartbeat(instance: InstanceRecord): Promise<readonly string[]> {
    await registry.heartbeat(this.#sql.registry, this.#settles.query, instance)
    return this.paused()
  }

  async registerStopped(consumer: InstanceRecord, replaces: string): Promise<readonly string[]> {
    await this.#settles.transaction((query) =>
      registry.registerStopped(this.#sql.registry, query, consumer, replaces),
    )
    return this.paused()
  }

  overview() {
    return this.#alone((query) => overviewing.overview(this.#sql.overview, query))
  }

  /** With other limits than the usual ones: for tests. */
  diagnose(limits?: Limits) {
    const taken = reserved.get(this.#pool) ?? 0
    const subject: diagnosing.Subject = {
      store: this,
      query: (sql, params) => this.#alone((query) => query(sql, params)),
      names: this.#names,
      database: this.#database,
      maxConnections: this.#pool.config.connectionLimit || Number.POSITIVE_INFINITY,
      needed: taken + (this.#opened ? 0 : OWN_CONNECTIONS) + 1,
    }
    return diagnosing.diagnose(subject, limits)
  }

  instances(seenWithinMs: number) {
    return registry.instances(this.#sql.registry, this.#settles.query, seenWithinMs)
  }

  stats() {
    return inspecting.stats(this.#sql.inspect, this.#settles.query)
  }

  async list(filter: EventFilter) {
    const records = await this.#alone((query) => inspecting.list(this.#sql.inspect, query, filter))
    return records.map(hideFromInspection)
  }

  retryDead(filter: EventFilter) {
    return this.#alone((query) => inspecting.retryDead(this.#sql.inspect, query, filter))
  }

  discardDead(filter: EventFilter) {
    return this.#alone((query) => inspecting.discardDead(this.#sql.inspect, query, filter))
  }

  pruneDone(olderThanMs: number, limit: number) {
    return this.#alone((query) => pruning.pruneDone(this.#sql.prune, query, olderThanMs, limit))
  }

  pruneInstances(olderThanMs: number) {
    return this.#alone((query) => registry.pruneInstances(this.#sql.registry, query, olderThanMs))
  }

  async paused(): Promise<readonly string[]> {
    const { rows } = await this.#settles.query(this.#sql.pauses.paused, [])
    return rows.map((row) => row[0] as string)
  }

  async pause(eventType: string): Promise<void> {
    await this.#alone((query) => query(this.#sql.pauses.pause, [eventType]))
  }

  async resume(eventType: string): Promise<boolean> {
    return (await this.#alone((query) => query(this.#sql.pauses.resume, [eventType]))).affected > 0
  }

  async markProcessed(client: Client, handler: string, eventId: string): Promise<boolean> {
    const query = await this.#on(client)
    const mark = () => inboxes.markProcessed(this.#sql.inbox, query, handler, eventId).catch(this.#explain)
    if (!(client instanceof HostedClient) || (await this.#isMariadb(query))) return mark()
    let isMarked = false
    const note = async () => {
      isMarked = await mark()
      return isMarked
    }
    const undo = async () => isMarked && this.#alone((own) => own(this.#sql.inbox.remove, [handler, eventId]))
    return provenInside(query, note, undo)
  }

  async isProcessed(handler: string, eventId: string): Promise<boolean> {
    const { rows } = await this.#alone((query) => query(this.#sql.inbox.contains, [handler, eventId]))
    return rows.length > 0
  }

  pruneProcessed(olderThanMs: number, limit: number) {
    return this.#alone((query) => inboxes.pruneProcessed(this.#sql.inbox, query, olderThanMs, limit))
  }

  /** In a transaction of its own, on any connection of the pool. */
  async #alone<T>(work: (query: Query) => Promise<T>): Promise<T> {
    this.#ensureFree()
    return inPool(this.#pool, work).catch(this.#explain)
  }

  readonly #explain = (error: unknown): never => {
    throw explained(error, this.#names)
  }

  /** Throws when no worker could run. Otherwise failing claims would be the first to report a missing right. */
  async #checkRights(): Promise<void> {
    const missing = await this.#alone((query) => missingRights(query, this.#names, 'handling'))
    if (missing.length > 0) throw denied(missing)
  }

  /** Throws if a statement outside of the caller's transaction would wait for its end. */
  readonly #ensureFree = (): void => {
    if (!holdsEverySession(this.sessions)) return
    throw new NestedTransactionError(
      `the pool has ${this.#most} connections, and none is free besides that of the transaction`,
    )
  }

  /** Connections that the pool may open. Zero stands for no limit. */
  get #most(): number {
    return this.#pool.config.connectionLimit || Number.POSITIVE_INFINITY
  }

  /** Only inside a transaction: one that has ended must not become an autocommit. */
  async #on(client: Client): Promise<Query> {
    if (client instanceof HostedClient) return hostedQuery(client, this.#names.index)
    const connection = this.#source.coreOf(client)
    await sessionOf(connection)
    return ensureInTransaction(connection)
  }

  /** A connection of the pool that cannot be used is given back, or closed if it is broken. */
  async #sessionOf(connection: CoreConnection, pooled: boolean): Promise<Session> {
    try {
      return await sessionOf(connection)
    } catch (error) {
      if (pooled && error instanceof InvalidSettingError) connection.release?.()
      else if (pooled) connection.destroy()
      throw error
    }
  }

  /** A lost idle connection must not end the process, whether the outbox is started or only publishes. */
  #guard(): void {
    if (this.#guarding) return
    this.#guarding = true
    this.#pool.on('connection', this.#onConnection)
  }

  readonly #onConnection = (connection: CoreConnection): void => {
    connection.on('error', ignore)
  }

  async #checkServer(events: StoreEvents): Promise<void> {
    const { rows, log } = await this.#alone(async (query) => ({
      rows: (await query(`select ${CHECKED_VARIABLES}, @@max_allowed_packet`, [])).rows,
      // A server without one of these variables is no error that way.
      log: (await query(`show session variables where variable_name in ('log_bin', 'binlog_format')`)).rows,
    }))
    const row = rows[0] ?? []
    checkSession(row)
    const logs = new Map(log.map(([name, value]) => [String(name).toLowerCase(), value]))
    if (logs.get('log_bin') === 'ON' && logs.get('binlog_format') === 'STATEMENT') throw statementFormat()
    const packet = row[5]
    if (Number(packet) >= ENOUGH_BYTES) return
    events.onWarning(
      `max_allowed_packet of the server is ${packet}: large payloads may be refused, set it to 16M or more`,
    )
  }

  /** With a newer version some of them may be missing while a deploy is under way; the first is what all stand on. */
  async #checkMigrated(): Promise<void> {
    const missing = await this.pendingMigrations()
    if (missing.some(({ version }) => version === 1)) throw new StoreNotMigratedError()
  }
}
