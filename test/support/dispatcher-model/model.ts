import { fixedDelay } from '../../../src/core/backoff.js'
import { EventCatalog } from '../../../src/core/catalog.js'
import { silentLogger } from '../../../src/observe/logger.js'
import { batchRegistrationOf, registrationOf } from '../../../src/outbox/registration.js'
import type { Settlement } from '../../../src/store.js'
import { event } from '../../../src/testing/store-conformance/fixtures.js'
import { VirtualClock } from '../../../src/testing/virtual-clock.js'
import { BoundedQueue } from '../../../src/work/bounded-queue.js'
import { Delivery } from '../../../src/work/delivery.js'
import { Dispatcher } from '../../../src/work/dispatcher.js'
import { InFlight } from '../../../src/work/in-flight.js'
import { LeaseKeeper } from '../../../src/work/lease-keeper.js'
import { leaseLost } from '../../../src/work/lease-lost.js'
import { linkRuns } from '../../../src/work/ordered-scan.js'
import { type Registration, Routes } from '../../../src/work/routes.js'
import { Settler } from '../../../src/work/settler.js'
import { fateOf } from './oracle.js'
import { type Action, errorOf, type HandlerPlan, LEASE_MS, type Plan } from './plan.js'
import { type Row, Table } from './table.js'
import { type Call, Watcher } from './watcher.js'

const PLACES = 1_000

/** The dispatcher with its settler and lease keeper, between a table and handlers that are watched. */
export class Model {
  readonly #plan: Plan
  readonly #clock = new VirtualClock()
  readonly #table: Table
  readonly #watcher: Watcher
  readonly #inFlight = new InFlight()
  readonly #routes = new Routes(new EventCatalog())
  readonly #hot = new BoundedQueue<Delivery>(PLACES, 1e9)
  readonly #cold = new BoundedQueue<Delivery>(PLACES, 1e9)
  readonly #settler: Settler
  readonly #dispatcher: Dispatcher
  readonly #keeper: LeaseKeeper
  #claims = 0

  constructor(plan: Plan) {
    this.#plan = plan
    const now = () => this.#clock.monotonic()
    this.#table = new Table(plan.events, now)
    const watcher = new Watcher(plan, this.#table, now)
    this.#watcher = watcher
    const common = { clock: this.#clock, logger: silentLogger, metrics: undefined, inFlight: this.#inFlight }
    this.#settler = new Settler({
      ...common,
      keepDone: true,
      inFlightCount: () => this.#inFlight.size,
      store: { list: (filter) => this.#table.list(filter), settleIfLeased: async (all) => this.#settle(all) },
      onSettled: (delivery, _, settled) => {
        if (!delivery) return
        this.#inFlight.remove(delivery)
        if (!settled) for (const one of delivery.next?.run ?? []) one.lose(leaseLost())
      },
    })
    this.#dispatcher = new Dispatcher({
      ...common,
      instance: 'me',
      concurrency: plan.concurrency,
      hot: this.#hot,
      cold: this.#cold,
      routes: this.#routes,
      settler: this.#settler,
      retry: { maxAttempts: plan.maxAttempts, policy: fixedDelay(plan.delayMs) },
      haltsKeys: false,
      onUnroutable: 'dead',
      interceptors: plan.refusals.length === 0 ? [] : [this.#interceptor()],
      createScope: undefined,
      redact: undefined,
      onDropped: (delivery) => {
        watcher.dropped(delivery)
        this.#inFlight.remove(delivery)
      },
      wakeups: { request: () => {} },
    })
    this.#keeper = new LeaseKeeper({ ...common, leaseMs: LEASE_MS, stuckAfterMs: 1e9, store: this.#table })
    for (const handler of plan.handlers) this.#register(handler)
  }

  /** Everything that was wrong, after all of it has happened and a calm time has followed. */
  async run(): Promise<string[]> {
    await this.#clock.advance(1)
    this.#dispatcher.resume()
    this.#keeper.start()
    const { actions } = this.#plan
    for (const action of actions) await this.#act(action)
    if (actions.length === 0) await this.#work(500, 100)
    this.#table.outages = []
    this.#table.cutOffUntil = 0
    if (actions.length === 0) this.#checkFates()
    this.#watcher.calm = true
    this.#setPaused([])
    if (this.#watcher.stopped) this.#start()
    await this.#work(60, 400)
    for (let round = 0; round < 20 && this.#inFlight.size > 0; round++) await this.#advance(400)
    await this.#keeper.stop()
    await this.#advance(3_000)
    this.#checkEnd()
    return this.#watcher.problems
  }

  /** Claims what there is, until everything has ended. */
  async #work(rounds: number, ms: number): Promise<void> {
    for (let round = 0; round < rounds && this.#pending.length > 0; round++) {
      this.#claim(100)
      this.#claimOrdered(100)
      await this.#advance(ms)
    }
  }

  get #pending(): readonly Row[] {
    return this.#table.rows.filter((row) => row.status === 'NEW')
  }

  // ── what happens ─────────────────────────────────────────────────────────────────────────────────────────

  async #act(action: Action): Promise<void> {
    const { paused, rows } = this.#table
    if (action.kind === 'claim') this.#claim(action.count, action.lateMs)
    else if (action.kind === 'claimOrdered') this.#claimOrdered(action.count, action.lateMs)
    else if (action.kind === 'hot') this.#goHot(rows[action.event % rows.length] as Row)
    else if (action.kind === 'pause') this.#setPaused([...paused, action.type])
    else if (action.kind === 'resume') this.#setPaused([...paused].filter((type) => type !== action.type))
    else if (action.kind === 'stop') this.#stop()
    else if (action.kind === 'start') this.#start()
    else if (action.kind === 'steal') this.#steal(action)
    else if (action.kind === 'outage') this.#table.outages.push(...action.how)
    else if (action.kind === 'cutOff') this.#table.cutOffUntil = this.#clock.monotonic() + action.ms
    else if (action.kind === 'hurry') void this.#dispatcher.eagerly(() => this.#wait(action.ms))
    await this.#advance(action.after)
  }

  async #advance(ms: number): Promise<void> {
    await this.#clock.advance(ms)
    const waiting = this.#hot.length + this.#cold.length
    if (waiting > 0 && this.#watcher.isIdle) this.#watcher.wrong(`${waiting} wait and nobody works`)
  }

  #wait(ms: number): Promise<void> {
    return new Promise((resolve) => this.#clock.setTimer(resolve, ms))
  }

  #setPaused(types: readonly string[]): void {
    const { paused } = this.#table
    paused.clear()
    for (const type of types) paused.add(type)
    if (!this.#routes.setPausedTypes([...paused])) return
    this.#watcher.interrupted((type) => paused.has(type))
    this.#dispatcher.releasePaused()
  }

  #stop(): void {
    this.#watcher.stopped = true
    this.#watcher.interrupted(() => true)
    this.#dispatcher.suspend()
  }

  #start(): void {
    this.#watcher.stopped = false
    this.#dispatcher.resume()
  }

  /** Another instance takes the row, although its lease was good; we may hear of it. */
  #steal({ event, how, tells }: { event: number; how: 'done' | 'free'; tells: boolean }): void {
    const leased = this.#pending.filter((row) => row.token !== null)
    const row = leased[event % leased.length]
    if (!row?.token) return
    const delivery = this.#watcher.taken(row, row.token)
    row.token = null
    if (how === 'done') row.status = 'DONE'
    if (tells) delivery?.lose(leaseLost())
  }

  #claim(count: number, lateMs = 0): void {
    const token = this.#newToken()
    const claimed = this.#table.free(count).map((row) => this.#lease(row, token, 'cold'))
    this.#answer(claimed, lateMs)
  }

  #claimOrdered(count: number, lateMs = 0): void {
    const token = this.#newToken()
    const rows = this.#table.freeRuns(count).flat()
    this.#answer(linkRuns(rows.map((row) => this.#lease(row, token, 'cold'))), lateMs)
  }

  #newToken(): string {
    this.#table.leftOut = this.#routes.filter().excludedTypes ?? []
    return `me:${++this.#claims}`
  }

  #answer(claimed: readonly Delivery[], lateMs: number): void {
    if (lateMs === 0) this.#dispatcher.addCold(claimed)
    else this.#clock.setTimer(() => this.#dispatcher.addCold(claimed), lateMs)
  }

  /** As if it had just been published. */
  #goHot(row: Row): void {
    const isNew = row.attempts === 0 && row.handledBy.length === 0 && row.token === null && row.key === null
    if (!isNew || this.#watcher.stopped || !this.#table.canRun(row) || this.#inFlight.hasEvent(row.id)) return
    const delivery = this.#lease(row, `hot:${++this.#claims}`, 'hot')
    this.#hot.reserve(delivery.bytes)
    this.#dispatcher.addHot(delivery)
  }

  #lease(row: Row, token: string, source: 'hot' | 'cold'): Delivery {
    const { id: eventId, type: eventType, key } = row
    const suspect = this.#table.lease(row, token)
    const delivery = new Delivery({
      event: event({ eventId, eventType, ...(key === null ? {} : { orderingKey: key }) }),
      ...{ token, leasedUntil: row.lockedUntil, attempts: row.attempts, handledBy: row.handledBy },
      ...{ source, suspect, unroutable: false },
    })
    this.#watcher.claimed(row, delivery)
    return delivery
  }

  #settle(settlements: readonly Settlement[]): Set<string> {
    for (const one of settlements) this.#watcher.settles(one)
    return this.#table.settle(settlements)
  }

  // ── the handlers ─────────────────────────────────────────────────────────────────────────────────────────

  #register(handler: HandlerPlan): void {
    const { name, type, maxAttempts, delayMs, concurrency, batch } = handler
    const timeoutMs = this.#timeoutOf(handler)
    const options = {
      retry: {
        ...(maxAttempts === null ? {} : { maxAttempts }),
        ...(delayMs === null ? {} : { policy: fixedDelay(delayMs) }),
      },
      ...(concurrency === null ? {} : { concurrency }),
    }
    if (batch === null) {
      const { registration } = registrationOf(
        type,
        name,
        ({ eventId }, { attempt }) => this.#handle(handler, eventId, attempt),
        { ...options, timeoutMs },
      )
      this.#add(registration)
      return
    }
    const { registration } = batchRegistrationOf(
      type,
      name,
      (events, { attempts }) =>
        this.#handleBatch(
          handler,
          events.map((one) => one.eventId),
          attempts,
        ),
      { ...options, ...batch, timeoutMs },
    )
    this.#add(registration)
  }

  #add(registration: Registration): void {
    const { room } = this.#plan
    for (const { queue } of this.#dispatcher.register([registration])) {
      if (queue && room !== null) queue.capacity = room
    }
  }

  /** In calm plans the fate of an event must not depend on the company that it has in a batch. */
  #timeoutOf({ batch, timeoutMs }: HandlerPlan): number {
    return batch !== null && this.#plan.actions.length === 0 ? 0 : timeoutMs
  }

  /** What a call does: after its timeout nobody waits for it, except where it has a key. */
  async #take(calls: readonly Call[], takesMs: number, timeoutMs: number): Promise<void> {
    const isLate = timeoutMs > 0 && takesMs > timeoutMs
    if (isLate) {
      await this.#wait(timeoutMs)
      for (const call of calls) this.#watcher.overdue(call)
    }
    const restMs = isLate ? takesMs - timeoutMs : takesMs
    if (restMs > 0) await this.#wait(restMs)
  }

  async #handle(handler: HandlerPlan, eventId: string, attempt: number): Promise<void> {
    const call = this.#watcher.begins(handler, eventId, attempt)
    if (!call) return
    const step = this.#watcher.step(call)
    const error = errorOf(step)
    const timeoutMs = this.#timeoutOf(handler)
    const isLate = timeoutMs > 0 && step.takesMs > timeoutMs
    this.#watcher.result(call, isLate ? new Error('too late') : error)
    await this.#take([call], step.takesMs, timeoutMs)
    this.#watcher.ended(call)
    if (error) throw error
  }

  async #handleBatch(handler: HandlerPlan, ids: readonly string[], attempts: readonly number[]) {
    const watcher = this.#watcher
    watcher.batch(handler, ids.length, 1)
    const calls = ids
      .map((id, at) => watcher.begins(handler, id, attempts[at] as number))
      .filter((call) => call !== null)
    const steps = calls.map((call) => watcher.step(call))
    const errors = steps.map(errorOf)
    const thrown = this.#plan.batchesThrow ? errors.find((error) => error !== null) : undefined
    const takesMs = Math.max(...steps.map((step) => step.takesMs))
    const timeoutMs = this.#timeoutOf(handler)
    const late = timeoutMs > 0 && takesMs > timeoutMs ? new Error('too late') : null
    calls.forEach((call, at) => {
      watcher.result(call, late ?? thrown ?? errors[at] ?? null)
    })
    await this.#take(calls, takesMs, timeoutMs)
    watcher.batch(handler, ids.length, -1)
    for (const call of calls) watcher.ended(call)
    if (thrown) throw thrown
    return errors
  }

  #interceptor() {
    return {
      beforeDispatch: ({ eventId }: { eventId: string }) => this.#watcher.before(eventId),
      afterDispatch: ({ eventId }: { eventId: string }) => this.#watcher.after(eventId),
    }
  }

  // ── the end ──────────────────────────────────────────────────────────────────────────────────────────────

  /** Nothing but the handlers went wrong: each event must have come to the end that it was bound to. */
  #checkFates(): void {
    for (const { n, id, status, attempts, handledBy } of this.#table.rows) {
      const calls = [...(this.#watcher.calls.get(id) ?? [])].map(([name, count]) => `${name} ${count}`).sort()
      const found = JSON.stringify({ status, attempts, handledBy, calls })
      const expected = JSON.stringify(fateOf(this.#plan, n))
      if (found !== expected) this.#watcher.wrong(`${id} came to ${found}, and was bound to ${expected}`)
    }
  }

  #checkEnd(): void {
    for (const row of this.#pending) this.#watcher.wrong(`${row.id} is forgotten: ${JSON.stringify(row)}`)
    this.#watcher.checkEnd()
    const left = {
      excludedTypes: this.#routes.filter().excludedTypes?.length ?? 0,
      ...{ held: this.#inFlight.size, timers: this.#clock.timerCount },
      ...{ hot: PLACES - this.#hot.free, cold: PLACES - this.#cold.free },
    }
    if (Object.values(left).some((count) => count > 0)) {
      this.#watcher.wrong(`something is left: ${JSON.stringify(left)}`)
    }
  }
}
