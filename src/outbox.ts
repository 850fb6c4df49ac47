import { randomBytes } from 'node:crypto'
import { hostname } from 'node:os'
import { currentTransaction, holdsEverySession } from './ambient.js'
import { checkEventHandler, checkTypes } from './bus/subscriptions.js'
import type { EventBus, EventHandler, PublishOptions } from './bus.js'
import { EventCatalog } from './core/catalog.js'
import type { EventDefinition } from './core/define-event.js'
import type { PublishableEvent } from './core/domain-event.js'
import {
  AftercommitError,
  InvalidSettingError,
  NestedTransactionError,
  NoActiveTransactionError,
  TransactionEndedError,
} from './core/errors.js'
import type { EventId } from './core/event-id.js'
import { nameNested } from './core/name-nested.js'
import { isA } from './core/unknown.js'
import type { BatchFunction, HandlerFunction } from './handler.js'
import { DeadLetters } from './outbox/dead-letters.js'
import type { Health, HealthOptions, OutboxStats } from './outbox/health.js'
import {
  type BatchHandlerOptions,
  batchRegistrationOf,
  type Registered,
  type Route,
  registrationOf,
} from './outbox/registration.js'
import { type OutboxOptions, type Settings, settingsOf } from './outbox/settings.js'
import { hostedTransactions } from './publish/hosted.js'
import { type Begin, nestedTransaction, type Shared, TransactionScope } from './publish/transaction-scope.js'
import { readPublishOptions } from './publish-options.js'
import { RELAY_CONCURRENCY, Relay, type RelayOptions, type RelayTarget, relayOptionsOf } from './relay.js'
import { Runtime } from './runtime.js'
import type { OutboxStore } from './store.js'
import type { HostedTransactions, Transaction, TransactionHost } from './transaction.js'
import type { Handler, HandlerOptions } from './work/routes.js'

export interface OutboxPublishOptions<Client> extends PublishOptions {
  /** The transaction to write in: one of ours, or the driver's own handle of one that the caller began. */
  readonly tx?: Transaction<Client> | Client | Omit<Client, 'release'>
}

/** Publishes events with the caller's transaction and delivers them after its commit. */
export class Outbox<Client = unknown> implements EventBus, AsyncDisposable {
  /** Unique for this process and object; rows it works on carry it. */
  readonly instanceId = randomBytes(6).toString('hex')
  readonly host = hostname()
  readonly catalog = new EventCatalog()
  readonly deadLetters: DeadLetters
  /** As it was given; for the inbox and other integrations. */
  readonly store: OutboxStore<Client>
  readonly #settings: Settings
  readonly #runtime: Runtime<Client>
  readonly #relays: Relay[] = []
  readonly #handled = new Set<string>()
  readonly #hosted = new WeakMap<object, unknown>()
  readonly #byHandle = new WeakMap<object & Client, TransactionScope<Client>>()
  readonly #shared: Shared<Client>

  constructor(options: OutboxOptions<Client>) {
    const settings = settingsOf(options)
    this.#settings = settings
    this.store = settings.store
    for (const definition of settings.events) this.catalog.add(definition)
    this.#runtime = new Runtime(this, settings.store, settings)
    this.deadLetters = new DeadLetters(settings.store, this.#settings.logger, () => this.#runtime.lookAgain())
    this.#shared = {
      owner: this,
      store: this.store,
      publisher: this.#runtime.publisher,
      logger: this.#settings.logger,
      byHandle: this.#byHandle,
    }
  }

  /** Creates or updates the tables. Returns the numbers of the migrations applied. */
  migrate(): Promise<readonly number[]> {
    return nameNested('migrate()', () => this.store.migrate())
  }

  /**
   * Calls `handler` with every event of that type, at least once, until it succeeds or the event is dead. The name
   * identifies the handler in the database: keep it when the code around it changes.
   */
  on<T>(event: EventDefinition<T>, name: string, handler: HandlerFunction<T>, options?: HandlerOptions): this
  on<T>(
    route: { readonly aggregateType: string; readonly type: EventDefinition<T> },
    name: string,
    handler: HandlerFunction<T>,
    options?: HandlerOptions,
  ): this
  on(
    event: string | { readonly aggregateType: string; readonly type: string },
    name: string,
    handler: HandlerFunction,
    options?: HandlerOptions,
  ): this
  on(route: Route, name: string, handler: HandlerFunction<never>, options?: HandlerOptions): this {
    this.#register([registrationOf(route, name, handler as HandlerFunction, options)])
    return this
  }

  /**
   * The same for a handler that takes many events at once. It returns nothing when all went well, or an array with an
   * entry for each event: null, or what went wrong with it. Throwing fails the whole batch.
   */
  onBatch<T>(
    event: EventDefinition<T>,
    name: string,
    options: BatchHandlerOptions,
    handler: BatchFunction<T>,
  ): this
  onBatch<T>(
    route: { readonly aggregateType: string; readonly type: EventDefinition<T> },
    name: string,
    options: BatchHandlerOptions,
    handler: BatchFunction<T>,
  ): this
  onBatch(
    event: string | { readonly aggregateType: string; readonly type: string },
    name: string,
    options: BatchHandlerOptions,
    handler: BatchFunction,
  ): this
  onBatch(route: Route, name: string, options: BatchHandlerOptions, handler: BatchFunction<never>): this {
    this.#register([batchRegistrationOf(route, name, handler as BatchFunction, options)])
    return this
  }

  /**
   * Registers a handler that is an object, as `EventSubscriber` has it: a module that registers through this port runs on an
   * outbox, on an InMemoryEventBus and on a broker. Equal to `on()` with the name of the handler.
   */
  subscribe<T>(type: string | EventDefinition<T>, handler: EventHandler<T>): void {
    this.subscribeAll([type as EventDefinition], handler as EventHandler)
  }

  /** Calls `subscribe()` for each type. Subscribes to none of them if one is refused. */
  subscribeAll(types: readonly (string | EventDefinition)[], handler: EventHandler): void {
    const name = checkEventHandler(handler)
    // As a method: the handler may be an instance of a class.
    const handle: HandlerFunction = (event) => handler.handle(event)
    this.#register(checkTypes(types).map((type) => registrationOf(type, name, handle, undefined)))
  }

  /**
   * Publishes these events to a broker: each is done when the broker has confirmed it. While it is down they wait, no
   * attempt is counted and nothing dies of it; the order within a key is kept. Several processes share the work.
   */
  relay(bus: RelayTarget, options?: RelayOptions): this {
    const { events, name, size } = relayOptionsOf(bus, options)
    const { clock, logger, tracer, redact } = this.#settings
    const relay = new Relay(bus, clock, logger, { name, tracer, redact })
    const batches = { size, waitMs: 0, concurrency: RELAY_CONCURRENCY }
    const registered = events.map((event) => {
      const { definition, registration } = batchRegistrationOf(event, name, relay.handle, batches)
      return { definition, registration: { ...registration, isRaw: true } }
    })
    for (const { queue } of this.#register(registered)) if (queue) relay.watch(queue, size)
    this.#relays.push(relay)
    return this
  }

  /** Event types and patterns that have a handler here, in the order in which they came. */
  get handledTypes(): readonly string[] {
    return [...this.#handled]
  }

  /** Registers all of the handlers, or none of them if it throws. */
  #register(registered: readonly Registered[]): readonly Handler[] {
    const registrations = registered.map(({ registration }) => registration)
    const definitions = registered.flatMap(({ definition }) => definition ?? [])
    const handlers = this.#runtime.register(registrations, definitions)
    for (const { eventType } of registrations) this.#handled.add(eventType)
    return handlers
  }

  /**
   * No instance starts to handle events of this type, or any event at all, until `resume` is called. Handlers under
   * way go on. It is kept in the database and outlives every process.
   */
  async pause(event: string | EventDefinition = '*'): Promise<void> {
    await nameNested('pause()', () => this.store.pause(pausable(event)))
    await this.#runtime.pauses.changed()
    this.#settings.logger.info({ event_type: pausable(event) }, 'paused')
  }

  /** False when it was not paused. Resuming one type does not resume it while everything is paused. */
  async resume(event: string | EventDefinition = '*'): Promise<boolean> {
    const resumed = await nameNested('resume()', () => this.store.resume(pausable(event)))
    await this.#runtime.pauses.changed()
    if (resumed) this.#settings.logger.info({ event_type: pausable(event) }, 'resumed')
    return resumed
  }

  /** The types that are paused; `*` when everything is. */
  paused(): Promise<readonly string[]> {
    return nameNested('paused()', () => this.store.paused())
  }

  /** Starts delivering. Safe to call twice; rejects when the database cannot be used. */
  start(): Promise<void> {
    return nameNested('start()', () => this.#runtime.start())
  }

  /**
   * Stops taking work, waits for handlers under way at most `drainTimeoutMs`, gives the rest back, and leaves no
   * timer, socket or listener behind. Also ends `poll()`, `consumeOne()` and `drain()`. Safe to call twice.
   */
  stop(): Promise<void> {
    const { sessions } = this.store
    if (sessions?.isOnly && this.#runtime.isWorking && holdsEverySession(sessions)) {
      const reason = 'it waits for statements that wait for the transaction'
      return Promise.reject(new NestedTransactionError(reason, 'stop()'))
    }
    const stop = () => this.#runtime.stop()
    return this.#relays.reduce((work, relay) => () => relay.stopping(work), stop)()
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop()
  }

  /**
   * Runs the body in a transaction, on a connection of the store or on the caller's idle client. Inside another
   * transaction of this outbox it becomes a savepoint. Rolls back and rethrows when the body throws.
   */
  transaction<T>(body: (tx: Transaction<Client>) => Promise<T>): Promise<T>
  transaction<T>(
    client: Client | Omit<Client, 'release'>,
    body: (tx: Transaction<Client>) => Promise<T>,
  ): Promise<T>
  transaction<T>(...args: unknown[]): Promise<T> {
    const body = args[args.length - 1] as (tx: Transaction<Client>) => Promise<T>
    if (typeof body !== 'function') {
      return Promise.reject(
        new InvalidSettingError('transaction', 'takes a function: transaction(async (tx) => …)'),
      )
    }
    const client = args.length > 1 ? (args[0] as Client) : undefined
    const ambient = this.#ambient()
    if (ambient && !ambient.ended && (client === undefined || client === ambient.client)) {
      // Its client is one of the ORM's, and not what the body may expect.
      return ambient.host ? Promise.reject(nestedTransaction()) : ambient.transaction(body)
    }
    return TransactionScope.run(this.#shared, (run) => this.store.transaction(run, client), body)
  }

  /**
   * The transactions of an ORM, with this outbox in them: `publish` inside the body writes in that transaction, and what
   * it wrote is delivered after the commit. Inside another one of the same ORM it becomes a savepoint.
   */
  transactionsOf<Tx extends object, Options = unknown>(
    host: TransactionHost<Tx, Options>,
  ): HostedTransactions<Tx, Options> {
    const source = host.source ?? host
    // The store knows these transactions as HostedClient, whatever its own clients are.
    const known = this.#hosted.get(source) ?? hostedTransactions(this.#shared as unknown as Shared<Tx>, host)
    this.#hosted.set(source, known)
    return known as HostedTransactions<Tx, Options>
  }

  /** Writes the event in the surrounding transaction; NoActiveTransactionError when there is none. */
  async publish(event: PublishableEvent, options?: OutboxPublishOptions<Client>): Promise<EventId> {
    const [id] = await this.#publish([event], options)
    return id as EventId
  }

  /** Writes all events by one statement, or none. Throws BatchTooLargeError above 64 MiB in total. */
  publishAll(
    events: readonly PublishableEvent[],
    options?: OutboxPublishOptions<Client>,
  ): Promise<EventId[]> {
    return this.#publish(events, options)
  }

  async #publish(events: readonly PublishableEvent[], given: unknown): Promise<EventId[]> {
    const options = readPublishOptions(given, true)
    const { tx } = options
    if (tx === null || (tx !== undefined && typeof tx !== 'object' && typeof tx !== 'function')) {
      throw new InvalidSettingError('tx', 'must be a transaction, or the client that one is open on')
    }
    const { publisher } = this.#runtime
    if (TransactionScope.isScope(tx)) {
      if (!tx.belongsTo(this))
        throw new AftercommitError('FOREIGN_TRANSACTION', 'This transaction is one of another outbox.')
      if (tx.ended) throw new TransactionEndedError()
      return tx.send(publisher.prepare(events, options))
    }
    const ambient = this.#ambient()
    if (ambient && (tx === undefined || tx === ambient.client)) {
      if (ambient.ended) throw new TransactionEndedError()
      return ambient.send(publisher.prepare(events, options))
    }
    if (tx === undefined) throw new NoActiveTransactionError()
    const client = tx as Client & object
    const prepared = publisher.prepare(events, options)
    const hosted = this.#byHandle.get(client)
    if (hosted && !hosted.ended) return hosted.send(prepared)
    if (!this.store.capabilities.callerTransactions) {
      throw new AftercommitError(
        'UNSUPPORTED',
        'This store takes no transactions of the caller; use transaction().',
      )
    }
    await this.store.ensureInTransaction(client).catch((error) => {
      // What is no client of the store at all lacks what is called on it.
      if (hosted) throw new TransactionEndedError()
      throw isA(error, TypeError) ? unknownTransaction(error) : error
    })
    const { ids, pending } = await publisher.append(client, prepared)
    publisher.writtenUntracked(pending)
    return ids
  }

  /** Publishes in a short transaction of its own, whatever surrounds the call. */
  async enqueue(event: PublishableEvent, options?: PublishOptions): Promise<EventId> {
    const prepared = this.#runtime.publisher.prepare([event], readPublishOptions(options))
    const begin: Begin<Client> = (body) => this.store.transaction(body)
    const run = () => TransactionScope.run(this.#shared, begin, async (tx) => tx.send(prepared))
    const [id] = await nameNested('enqueue()', run)
    return id as EventId
  }

  /** One cycle by hand: claims a batch of what is due, handles it, and returns how many events that were. */
  async poll(): Promise<number> {
    return this.#waitForHandlers('poll()', () => this.#runtime.poll())
  }

  /** Takes and handles one event; false when none was due. */
  async consumeOne(): Promise<boolean> {
    return this.#waitForHandlers('consumeOne()', async () => (await this.#runtime.poll(1)) > 0)
  }

  /** Until nothing that this instance can handle is due and its buffers are empty. */
  async drain(): Promise<void> {
    await this.#waitForHandlers('drain()', () => this.#runtime.drain())
  }

  /**
   * Runs a call that waits for handlers. Refuses the call inside an open transaction: a handler may need rows, a lock or a
   * connection that this transaction holds until the call returns.
   */
  #waitForHandlers<T>(method: string, work: () => Promise<T>): Promise<T> {
    if (this.#ambient()?.ended === false) {
      const reason = 'it waits for handlers, and a handler may wait for this transaction to end'
      return Promise.reject(new NestedTransactionError(reason, method))
    }
    return nameNested(method, work)
  }

  async stats(): Promise<OutboxStats> {
    return nameNested('stats()', () => this.#runtime.stats())
  }

  /** For liveness and readiness probes. Answers in time, also when the store does not; rejects only for bad options. */
  async health(options: HealthOptions = {}): Promise<Health> {
    const waiting = this.#relays.flatMap((relay) => relay.waiting ?? [])
    return this.#runtime.health.check(options, waiting)
  }

  #ambient(): TransactionScope<Client> | undefined {
    return currentTransaction(this) as TransactionScope<Client> | undefined
  }
}

function unknownTransaction(cause: unknown): AftercommitError {
  return new AftercommitError(
    'UNKNOWN_TRANSACTION',
    'This tx is no transaction that the outbox knows. With an ORM, begin it by drizzleTransactions(outbox, db) or what your ORM has, and publish without tx inside.',
    { cause },
  )
}

function pausable(event: string | EventDefinition): string {
  const type = typeof event === 'function' ? event.eventType : event
  if (typeof type === 'string' && type.length >= 1 && (type === '*' || !type.endsWith('*'))) return type
  throw new InvalidSettingError('event', 'must be a definition or the name of one event type; none for all')
}

export function createOutbox<Client>(options: OutboxOptions<Client>): Outbox<Client> {
  return new Outbox(options)
}
