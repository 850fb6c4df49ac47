import { type Clock, systemClock } from '../../core/clock.js'
import { AftercommitError } from '../../core/errors.js'
import { isA } from '../../core/unknown.js'
import type { OutboxStore, StoreEvents } from '../../store.js'
import { HostedClient } from '../../transaction.js'
import { append, findPresent } from './append.js'
import { claim, claimUnroutable } from './claim.js'
import { MemoryClient, type Reservations } from './client.js'
import type { MemoryDatabase } from './database.js'
import { diagnose } from './diagnose.js'
import { isProcessed, type Marks, markProcessed, pruneProcessed } from './inbox.js'
import { discardDead, list, retryDead, stats } from './inspect.js'
import { claimOrdered } from './ordered.js'
import { overview } from './overview.js'
import { pruneDone } from './prune.js'
import { Registry } from './registry.js'
import { renewIfLeased, settleIfLeased } from './settle.js'
import { runTransaction } from './transaction.js'
import { unhandled } from './unhandled.js'

export interface MemoryStoreOptions {
  /** The clock of this "database"; default the machine's. */
  readonly clock?: Clock
  /**
   * Called at the start of each method with its name, and with `commit` and `committed` around a commit.
   * What it throws is what the caller gets: an outage, or (at `committed`) a lost reply to the commit.
   */
  readonly onCall?: (method: string) => void | Promise<void>
}

export interface MemoryStore extends OutboxStore<MemoryClient> {
  /** A session of the caller's own, to begin and end transactions on. */
  connect(): MemoryClient
}

/** The store on a table that its maker can look into, and spoil: the suites plant bugs that way. */
export function memoryStoreOn(database: MemoryDatabase, options: MemoryStoreOptions): MemoryStore {
  const clock = options.clock ?? systemClock
  const reserved: Reservations = new Map()
  const marks: Marks = new Map()
  const paused = new Set<string>()
  const registry = new Registry()
  const listeners: StoreEvents[] = []
  let openCount = 0

  const now = () => clock.now()
  const connect = () => new MemoryClient(reserved)
  const called = async (method: string) => {
    if (options.onCall) await options.onCall(method)
  }

  return {
    name: 'memory',
    capabilities: {
      durable: false,
      multiProcess: false,
      doorbell: true,
      callerTransactions: true,
      concurrentTransactions: true,
    },
    connect,

    async open(events) {
      await called('open')
      openCount++
      listeners.push(events)
    },
    /** With several outboxes on one store nobody knows whose close this is: the last one ends them all. */
    async close() {
      openCount = Math.max(0, openCount - 1)
      if (openCount === 0) listeners.length = 0
    },

    async migrate() {
      await called('migrate')
      return []
    },
    migrations: () => [],
    pendingMigrations: async () => [],

    async transaction(body, client = connect()) {
      await called('transaction')
      return runTransaction(client, called, body)
    },
    isRefusedCommit: () => true,
    async ensureInTransaction(client) {
      await called('ensureInTransaction')
      void ownClient(client).transaction
    },

    async append(client, rows, appendOptions) {
      await called('append')
      return append(database, now, ownClient(client), rows, appendOptions)
    },
    async findPresent(client, eventIds) {
      await called('findPresent')
      return findPresent(database, ownClient(client), eventIds)
    },

    async claim(request) {
      await called('claim')
      return claim(database, now(), request)
    },
    async claimOrdered(request) {
      await called('claimOrdered')
      return claimOrdered(database, now(), request)
    },
    async claimUnroutable(request) {
      await called('claimUnroutable')
      return claimUnroutable(database, now(), request)
    },
    async unhandled(request) {
      await called('unhandled')
      return unhandled(database, now(), request)
    },
    async settleIfLeased(settlements, keepDone) {
      await called('settleIfLeased')
      return settleIfLeased(database, now(), settlements, keepDone)
    },
    async renewIfLeased(claims, leaseMs) {
      await called('renewIfLeased')
      return renewIfLeased(database, now(), claims, leaseMs)
    },
    async ring(ring) {
      await called('ring')
      for (const listener of [...listeners]) queueMicrotask(() => listener.onRing(ring))
    },

    async heartbeat(instance) {
      await called('heartbeat')
      registry.heartbeat(instance, now())
      return [...paused]
    },
    async registerStopped(consumer, replaces) {
      await called('registerStopped')
      registry.registerStopped(consumer, replaces, now())
      return [...paused]
    },
    async overview() {
      await called('overview')
      return overview(database, now())
    },
    async diagnose() {
      await called('diagnose')
      return diagnose(this, database, now)
    },

    async instances(seenWithinMs) {
      await called('instances')
      return registry.seenSince(now() - seenWithinMs)
    },

    async stats() {
      await called('stats')
      return stats(database, now(), registry.total())
    },
    async list(filter) {
      await called('list')
      return list(database, filter)
    },
    async retryDead(filter) {
      await called('retryDead')
      return retryDead(database, now(), filter)
    },
    async discardDead(filter) {
      await called('discardDead')
      return discardDead(database, filter)
    },
    async pruneDone(olderThanMs, limit) {
      await called('pruneDone')
      return pruneDone(database, now(), olderThanMs, limit)
    },
    async pruneInstances(olderThanMs) {
      await called('pruneInstances')
      registry.forgetBefore(now() - olderThanMs)
    },

    async paused() {
      await called('paused')
      return [...paused]
    },
    async pause(eventType) {
      await called('pause')
      paused.add(eventType)
    },
    async resume(eventType) {
      await called('resume')
      return paused.delete(eventType)
    },

    async markProcessed(client, handler, eventId) {
      await called('markProcessed')
      return markProcessed(marks, now, ownClient(client), handler, eventId)
    },
    async isProcessed(handler, eventId) {
      await called('isProcessed')
      return isProcessed(marks, handler, eventId)
    },
    async pruneProcessed(olderThanMs, limit) {
      await called('pruneProcessed')
      return pruneProcessed(marks, now(), olderThanMs, limit)
    },
  }
}

function ownClient(client: MemoryClient): MemoryClient {
  if (isA(client, MemoryClient)) return client
  if (!isA(client, HostedClient)) throw new TypeError('a client of the memory store is made by connect()')
  throw new AftercommitError(
    'UNSUPPORTED',
    'The memory store has no database that an ORM could share. Use the store of that database.',
  )
}
