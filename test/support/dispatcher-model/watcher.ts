import type { Settlement } from '../../../src/store.js'
import type { Delivery } from '../../../src/work/delivery.js'
import { complaintAbout, isThrough, type Judged } from './oracle.js'
import { type HandlerPlan, type Plan, refusalOf, type Step, stepOf } from './plan.js'
import type { Row, Table } from './table.js'

/** One delivery, from the claim until it has ended. */
interface Held extends Judged {
  readonly row: Row
  readonly delivery: Delivery
  readonly results: Map<string, Error | null>
  refusal: Error | null
  interrupted: boolean
  /** Its row was taken from us. */
  taken: boolean
  /** That was known when its last handler ended. */
  endedLost: boolean
  /** Calls that have not ended; those that were given up do not count. */
  open: number
  before: number
  after: number
  end: Settlement | 'dropped' | null
}

export interface Call {
  readonly held: Held
  readonly handler: HandlerPlan
}

/** Sees every claim, call and outcome, and says what is wrong with it. */
export class Watcher {
  readonly problems: string[] = []
  /** How often each handler was called, by event id and name. */
  readonly calls = new Map<string, Map<string, number>>()
  /** From now on every handler succeeds. */
  calm = false
  stopped = false
  readonly #plan: Plan
  readonly #table: Table
  readonly #now: () => number
  readonly #held: Held[] = []
  readonly #running = new Set<Call>()
  /** Those and the ones that were given up and run on. */
  readonly #alive = new Set<Call>()
  readonly #overdue = new Set<Call>()
  readonly #batches = new Map<HandlerPlan, number>()

  constructor(plan: Plan, table: Table, now: () => number) {
    this.#plan = plan
    this.#table = table
    this.#now = now
  }

  wrong(text: string): void {
    this.problems.push(`${this.#now()} ms: ${text}`)
  }

  claimed(row: Row, delivery: Delivery): void {
    const { attempts, handledBy, type } = row
    this.#held.push({
      ...{ row, delivery, type, attempts, handledBy, results: new Map(), refusal: null, interrupted: false },
      ...{ taken: false, endedLost: false, open: 0, before: 0, after: 0, end: null },
    })
  }

  /** What of these types waits for its turn may be given back. */
  interrupted(which: (type: string) => boolean): void {
    for (const held of this.#held) if (held.end === null && which(held.type)) held.interrupted = true
  }

  /** Returns the delivery whose row was taken from us. */
  taken(row: Row, token: string): Delivery | undefined {
    const held = this.#heldOf(row.id, token)
    if (held) held.taken = held.interrupted = true
    return held?.end === null ? held.delivery : undefined
  }

  /** What the handler does this time. */
  step({ held, handler }: Call): Step {
    const calls = this.calls.get(held.row.id) ?? new Map<string, number>()
    this.calls.set(held.row.id, calls)
    const call = calls.get(handler.name) ?? 0
    calls.set(handler.name, call + 1)
    return this.calm ? { kind: 'ok', takesMs: 0 } : stepOf(this.#plan, held.row.n, handler, call)
  }

  result(call: Call, error: Error | null): void {
    call.held.results.set(call.handler.name, error)
  }

  before(eventId: string): void {
    const held = this.#live(eventId)[0]
    if (!held) {
      this.wrong(`${eventId} is intercepted without being run`)
      return
    }
    held.before++
    held.refusal = this.calm ? null : refusalOf(this.#plan, held.row.n, held.attempts)
    if (held.refusal) throw held.refusal
  }

  after(eventId: string): void {
    const held = this.#live(eventId)[0]
    if (held) held.after++
  }

  /** A handler is called: may it be? */
  begins(handler: HandlerPlan, eventId: string, attempt: number): Call | null {
    const what = `${eventId} by ${handler.name}`
    const live = this.#live(eventId)
    const [held] = live
    if (!held || live.length > 1) {
      this.wrong(`${what} is called while ${live.length} deliveries of it run`)
      return null
    }
    const { row, delivery } = held
    const owns = row.token === delivery.token && row.status === 'NEW'
    if (held.end !== null) this.wrong(`${what} is called after its delivery has ended`)
    if (delivery.lost) this.wrong(`${what} is called although its lease is known to be lost`)
    if (held.results.has(handler.name)) this.wrong(`${what} is called twice in one delivery`)
    if (attempt !== held.attempts + 1) this.wrong(`${what} is told attempt ${attempt}`)
    if (owns && row.handledBy.includes(handler.name)) this.wrong(`${what} is called after its success`)
    if (owns && row.attempts !== held.attempts) this.wrong(`${what}: the row has ${row.attempts} attempts`)
    if (this.#now() >= delivery.leasedUntil) this.wrong(`${what} is called although its lease is over`)
    if (this.stopped) this.wrong(`${what} is called while everything is stopped`)
    if (this.#table.paused.has(row.type)) this.wrong(`${what} is called while its type is paused`)
    for (const { held: other } of this.#alive) {
      if (other.row === row && other !== held)
        this.wrong(`${what} is called beside an earlier run of ${eventId}`)
    }
    this.#checkOrder(held, owns, what)
    const call = { held, handler }
    this.#running.add(call)
    this.#alive.add(call)
    held.open++
    this.#checkLimits(handler, what)
    return call
  }

  /** Its timeout is over and it runs on: it keeps no worker, and without a key nobody waits for it any more. */
  overdue(call: Call): void {
    this.#overdue.add(call)
    if (call.held.row.key === null) this.#waitsNoMore(call)
  }

  ended(call: Call): void {
    this.#alive.delete(call)
    this.#overdue.delete(call)
    this.#waitsNoMore(call)
  }

  #waitsNoMore(call: Call): void {
    if (!this.#running.delete(call)) return
    call.held.open--
    if (call.held.open === 0) call.held.endedLost = call.held.delivery.lost
  }

  get isIdle(): boolean {
    return [...this.#running].every((call) => this.#overdue.has(call))
  }

  batch(handler: HandlerPlan, size: number, by: 1 | -1): void {
    const running = (this.#batches.get(handler) ?? 0) + by
    this.#batches.set(handler, running)
    if (running > (handler.concurrency ?? 1)) this.wrong(`${running} batches of ${handler.name} at a time`)
    if (size === 0 || size > (handler.batch?.size ?? 0))
      this.wrong(`${size} events in a batch of ${handler.name}`)
  }

  dropped(delivery: Delivery): void {
    const held = this.#heldOf(delivery.event.eventId, delivery.token)
    if (!held) {
      this.wrong(`${delivery.event.eventId} is dropped without a claim`)
      return
    }
    if (held.end !== null) this.wrong(`${held.row.id} is dropped after it has ended`)
    const isOver = delivery.lost || this.#now() >= delivery.leasedUntil
    if (!isOver) this.wrong(`${held.row.id} is dropped with a good lease`)
    held.end = 'dropped'
  }

  /** An outcome is written: is it the right one, and the only one? */
  settles(settlement: Settlement): void {
    const held = this.#heldOf(settlement.eventId, settlement.token)
    if (!held) {
      this.wrong(`${settlement.eventId} is settled without a claim`)
      return
    }
    if (held.end === settlement) return
    if (held.end !== null) this.wrong(`${held.row.id} has two ends`)
    held.end = settlement
    const { delivery } = held
    if (held.open > 0) this.wrong(`${held.row.id} is settled while ${held.open} handlers run`)
    if (held.before !== held.after) this.wrong(`${held.row.id}: ${held.before} before, ${held.after} after`)
    if (delivery.lost || this.#now() >= delivery.leasedUntil) held.interrupted = true
    const complaint = complaintAbout(this.#plan, held, settlement, delivery.startedAt > 0)
    if (complaint) this.wrong(`${held.row.id}: ${complaint}`)
  }

  checkEnd(): void {
    for (const held of this.#held) {
      if (held.end === null) this.wrong(`a delivery of ${held.row.id} has no end`)
      if (held.open > 0) this.wrong(`${held.row.id} still runs`)
    }
  }

  #live(eventId: string): Held[] {
    return this.#held.filter((one) => one.row.id === eventId && one.delivery.running)
  }

  #heldOf(eventId: string, token: string): Held | undefined {
    return this.#held.find((one) => one.row.id === eventId && one.delivery.token === token)
  }

  /** One event of a key at a time, and none before those in front of it are through. */
  #checkOrder({ row, delivery }: Held, owns: boolean, what: string): void {
    if (row.key === null || !owns) return
    for (const { held: other } of this.#alive) {
      const isOurs = !other.taken && !other.delivery.lost
      if (other.row.key === row.key && other.row !== row && isOurs)
        this.wrong(`${what} runs beside ${other.row.id}`)
    }
    for (const earlier of this.#table.rows) {
      if (earlier.key !== row.key || earlier.n >= row.n) continue
      const before = this.#heldOf(earlier.id, delivery.token)
      if (before?.endedLost) this.wrong(`${what} is called although ${earlier.id} before it was lost`)
      if (earlier.status !== 'NEW') continue
      const deliveries = this.#held.filter((one) => one.row === earlier)
      const isTaken = deliveries.some((one) => one.taken || one.delivery.lost)
      const last = deliveries.at(-1)
      // Done, and not written yet.
      const isDone = last !== undefined && last.open === 0 && isThrough(this.#plan, last)
      if (!isTaken && !isDone) this.wrong(`${what} is called before ${earlier.id} is through`)
    }
  }

  #checkLimits(handler: HandlerPlan, what: string): void {
    const running = [...this.#running].filter((call) => !this.#overdue.has(call))
    if (handler.batch === null && handler.concurrency !== null) {
      const count = [...this.#alive].filter((one) => one.handler === handler).length
      if (count > handler.concurrency) this.wrong(`${what}: ${count} calls at a time`)
    }
    const plain = running.filter((one) => one.handler.batch === null && one.handler.concurrency === null)
    const workers = new Set(plain.map((one) => one.held)).size
    if (workers > this.#plan.concurrency) this.wrong(`${what}: ${workers} workers at a time`)
  }
}
