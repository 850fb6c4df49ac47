import type { EventFilter, Settlement } from '../../src/store.js'
import { MemoryDatabase } from '../../src/stores/memory/database.js'
import { retryDead } from '../../src/stores/memory/inspect.js'
import { isPending, type Row } from '../../src/stores/memory/row.js'
import { settleIfLeased } from '../../src/stores/memory/settle.js'
import { type MemoryStore, memoryStoreOn } from '../../src/stores/memory/store.js'
import type { VirtualClock } from '../../src/testing/virtual-clock.js'
import type { randomOf } from './random.js'

export type Random = ReturnType<typeof randomOf>

/** What one simulation shares: its time, its chance, and what it found. */
export interface Scene {
  readonly clock: VirtualClock
  readonly random: Random
  readonly scheduler: SeededScheduler
  /** True with this probability, and never while everything works. */
  fails(probability: number): boolean
  report(problem: string): void
  /** Counts that this happened, and writes it into the trace of the run. */
  note(what: string, detail?: string): void
}

/** Those that wait for their turn go on one at a time, in an order that the seed alone decides. It takes no time. */
export class SeededScheduler {
  readonly #random: Random
  readonly #clock: VirtualClock
  readonly #waiting: (() => void)[] = []
  #isRunning = false

  constructor(random: Random, clock: VirtualClock) {
    this.#random = random
    this.#clock = clock
  }

  turn(): Promise<void> {
    return new Promise((resolve) => {
      this.#waiting.push(resolve)
      if (!this.#isRunning) this.#wake()
    })
  }

  #wake(): void {
    this.#isRunning = this.#waiting.length > 0
    if (this.#isRunning) this.#clock.setTimer(() => void this.#next(), 0)
  }

  /** Each gets a few steps ahead of the next one, how many is again a matter of the seed. */
  async #next(): Promise<void> {
    while (this.#waiting.length > 0) {
      const [goOn] = this.#waiting.splice(this.#random.below(this.#waiting.length), 1)
      goOn?.()
      for (let steps = this.#random.below(6); steps > 0; steps--) await undefined
    }
    this.#wake()
  }
}

/** The table of the simulation, which reports every change that no database may let pass. */
export class WatchedDatabase extends MemoryDatabase {
  readonly #scene: Pick<Scene, 'clock' | 'report'>
  /** Grows with every commit of a row and with every claim. */
  #moment = 0
  readonly #committed = new Map<string, number>()
  readonly #claimed = new Map<string, number>()
  readonly deleted = new Set<string>()
  /** A person retries dead events: the only way out of DEAD, and to fewer attempts. */
  isByHand = false
  onRetried: (eventId: string) => void = () => {}

  constructor(scene: Pick<Scene, 'clock' | 'report'>) {
    super()
    this.#scene = scene
  }

  override insert(row: Row): void {
    const { eventId } = row.event
    this.#committed.set(eventId, ++this.#moment)
    if (row.lockedBy !== null) this.#claimed.set(eventId, this.#moment)
    super.insert(row)
  }

  override delete(row: Row): void {
    this.deleted.add(row.event.eventId)
    super.delete(row)
  }

  override change(row: Row, changes: Parameters<MemoryDatabase['change']>[1]): void {
    const { status, attempts, lockedBy, lockedUntil } = row
    const { eventId } = row.event
    super.change(row, changes)
    if (row.lockedBy !== null && row.lockedBy !== lockedBy) {
      this.#claimed.set(eventId, ++this.#moment)
      const isTaken = lockedBy !== null && lockedUntil >= this.#scene.clock.now()
      if (isTaken) this.#scene.report(`I6: ${row.lockedBy} took ${eventId} while ${lockedBy} held it`)
    }
    if (status === 'DONE') this.#scene.report(`I8: ${eventId} was done, and changed to ${row.status}`)
    const isRetried = this.isByHand && status === 'DEAD'
    if (isRetried) this.onRetried(eventId)
    else if (status === 'DEAD') this.#scene.report(`I8: ${eventId} was dead, and changed to ${row.status}`)
    if (row.attempts < attempts && !isRetried)
      this.#scene.report(`I7: ${eventId} has ${row.attempts} after ${attempts}`)
  }

  /**
   * Events of the same key that were there when this one was claimed, come before it, and are not through. Those
   * claimed together with it may be through without their outcome being written yet.
   */
  overtaken(eventId: string, wasHandled: (eventId: string) => boolean): string[] {
    const row = this.rows.get(eventId)
    const claimed = this.#claimed.get(eventId) ?? 0
    if (!row || row.event.orderingKey === null) return []
    const earlier: string[] = []
    for (const one of this.ordered) {
      if (one.event.orderingKey !== row.event.orderingKey || one.seq >= row.seq) continue
      const id = one.event.eventId
      const isOfRun = one.lockedBy === row.lockedBy && wasHandled(id)
      if (!isOfRun && (this.#committed.get(id) ?? 0) < claimed) earlier.push(id)
    }
    return earlier
  }
}

/** One outbox's way to the database. */
export interface Link {
  /** Nothing gets through. */
  cutOff: boolean
  /** Its instance is no more: whatever it has called for never comes. */
  isGone: boolean
  readonly name: string
  /** When a call last failed, by the monotonic clock; of the renewal of leases also apart from the others. */
  troubleAt: number
  renewalTroubleAt: number
}

export interface SimulatedDatabase {
  readonly rows: WatchedDatabase
  /** The database itself, which never fails. */
  readonly store: MemoryStore
  connect(link: Link): MemoryStore
}

/** Their effect cannot be undone by an answer that is lost, or the answer to COMMIT stands for it. */
const NO_ANSWER = new Set(['transaction', 'open'])
const FLAKY = new Set([
  ...['claim', 'claimOrdered', 'claimUnroutable', 'settleIfLeased', 'renewIfLeased', 'ring', 'list'],
  ...['append', 'findPresent', 'heartbeat', 'instances', 'paused', 'stats', 'retryDead', 'transaction'],
  ...['open', 'pruneDone', 'pruneInstances', 'pruneProcessed'],
])
/** A simulation needs a few hundred. */
const MOST_CALLS = 20_000

export function simulatedDatabase(scene: Scene): SimulatedDatabase {
  const rows = new WatchedDatabase(scene)
  const store = memoryStoreOn(rows, {
    clock: scene.clock,
    onCall: async (method) => {
      if (method !== 'commit' && method !== 'committed') return
      await travel(scene)
      // The commit itself fails, or the reply to it is lost.
      if (!scene.fails(0.04)) return
      scene.note(`${method} lost`)
      throw new Error(`lost: ${method}`)
    },
  })
  return { rows, store, connect: (link) => connect(scene, rows, store, link) }
}

/** Every call waits for its turn, there and back, and now and then for much longer. */
async function travel({ scheduler, clock, random, fails }: Scene): Promise<void> {
  await scheduler.turn()
  if (!fails(0.06)) return
  const ms = random.pick([1, 5, 40, 400])
  await new Promise<void>((resolve) => clock.setTimer(resolve, ms))
}

/** Only what is in a transaction fails: the database ends it when its owner is gone. */
async function alive({ isGone }: Link, method: string): Promise<void> {
  if (isGone && method === 'append') throw new Error('gone: append')
  if (isGone) await new Promise(() => {})
}

function connect(scene: Scene, rows: WatchedDatabase, store: MemoryStore, link: Link): MemoryStore {
  let calls = 0
  const fail = (how: string, method: string) => {
    link.troubleAt = scene.clock.monotonic()
    if (method === 'renewIfLeased') link.renewalTroubleAt = link.troubleAt
    scene.note(`${method} ${how}`, link.name)
    throw new Error(`${how}: ${method}`)
  }
  const call = async (method: string, effect: () => Promise<unknown>): Promise<unknown> => {
    if (++calls > MOST_CALLS) {
      scene.report('the database is called without end')
      throw new Error('calls without end')
    }
    await travel(scene)
    await alive(link, method)
    if (link.cutOff || scene.fails(0.03)) fail('unreachable', method)
    const result = await effect()
    scene.note(method, link.name)
    await travel(scene)
    await alive(link, method)
    if (!NO_ANSWER.has(method) && (link.cutOff || scene.fails(0.02))) fail('answer lost', method)
    return result
  }
  return new Proxy(store, {
    get: (target, name) => {
      const value: unknown = Reflect.get(target, name, target)
      const method = String(name)
      if (typeof value !== 'function' || !FLAKY.has(method)) return value
      return (...args: unknown[]) =>
        call(method, () => effectOf(scene, rows, method, args, () => value.apply(target, args)))
    },
  })
}

/** The effect itself. What is looked at closely happens at once, so that nothing else can change anything meanwhile. */
async function effectOf(
  scene: Scene,
  rows: WatchedDatabase,
  method: string,
  args: readonly unknown[],
  effect: () => Promise<unknown>,
): Promise<unknown> {
  if (method === 'settleIfLeased') return settle(scene, rows, args[0] as Settlement[], args[1] as boolean)
  if (method !== 'retryDead') return effect()
  rows.isByHand = true
  const ids = retryDead(rows, scene.clock.now(), args[0] as EventFilter)
  rows.isByHand = false
  return ids
}

/** Only the holder of the lease may write, and only a failure is counted. */
function settle(
  { clock, report, note }: Scene,
  rows: WatchedDatabase,
  settlements: readonly Settlement[],
  keepDone: boolean,
): ReadonlySet<string> {
  const before = settlements.map(({ eventId, token }) => {
    const row = rows.rows.get(eventId)
    return { row, holds: row !== undefined && isPending(row) && row.lockedBy === token, was: { ...row } }
  })
  const settled = settleIfLeased(rows, clock.now(), settlements, keepDone)
  settlements.forEach((one, at) => {
    const { row, holds, was } = before[at] as (typeof before)[number]
    const { eventId, outcome } = one
    if (settled.has(eventId) !== holds)
      report(`I6: the outcome of ${eventId} by ${one.token} counts: ${!holds}`)
    if (!row) return
    const isChanged = JSON.stringify({ ...was, home: null }) !== JSON.stringify({ ...row, home: null })
    if (!holds && isChanged) report(`I6: ${one.token} changed ${eventId}, which it does not hold`)
    if (!holds) return
    note(`settled ${outcome}`, `${eventId} ${one.token}`)
    const counted = outcome === 'retry' || outcome === 'dead' ? one.attempts : 0
    if (row.attempts !== (was.attempts ?? 0) + counted)
      report(`I7: ${outcome} of ${eventId} made its attempts ${was.attempts} → ${row.attempts}`)
  })
  return settled
}
