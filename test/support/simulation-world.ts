import { fixedDelay } from '../../src/core/backoff.js'
import { CommitUnknownError, RetryAfter } from '../../src/core/errors.js'
import type { MetricsExporter } from '../../src/observe/metrics.js'
import { isPending } from '../../src/stores/memory/row.js'
import { createTestOutbox, type TestOutbox } from '../../src/testing/test-outbox.js'
import { VirtualClock } from '../../src/testing/virtual-clock.js'
import { randomOf } from './random.js'
import { type Instance, MortalClock, withSeededIds } from './simulation-instance.js'
import { aroundKiller, KILLER, KILLER_ATTEMPTS, killerProblems } from './simulation-killer.js'
import { problemsOf } from './simulation-rows.js'
import { type Incoming, LEASE_MS, Runs, type Told } from './simulation-runs.js'
import {
  type Link,
  type Random,
  type Scene,
  SeededScheduler,
  type SimulatedDatabase,
  simulatedDatabase,
} from './simulation-store.js'

const MAX_ATTEMPTS = 5
const TYPES = ['everywhere', 'everywhere.else', 'only.0', 'only.1', 'nowhere']
/** Fails until it is lifted, however often it is tried. */
const POISON = 'poison'
const ALL = { limit: 100_000 }

/** One "database", two or three outboxes on it, and everything that can go wrong at once. */
export class World {
  readonly clock = new VirtualClock()
  /** What happened how often. */
  readonly tally = new Map<string, number>()
  readonly #random: Random
  readonly #scene: Scene
  readonly #database: SimulatedDatabase
  readonly #runs: Runs
  readonly #instances: Instance[] = []
  readonly #trace: string[] | undefined
  readonly #problems: string[] = []
  readonly #committed = new Set<string>()
  readonly #rolledBack = new Set<string>()
  readonly #busy = new Set<Promise<unknown>>()
  /** Every fourth seed has a network without faults: what is done twice there has no excuse. */
  readonly #hasFaults: boolean
  readonly #doneMs: number
  readonly #counts: boolean
  /** It takes a few leases. */
  readonly #hasKiller: boolean
  #published = 0
  #isCalm = false
  #isPoisonLifted = false

  constructor(seed: number, trace?: string[]) {
    this.#random = randomOf(seed)
    this.#hasFaults = seed % 4 !== 0
    this.#counts = seed % 8 < 2
    this.#hasKiller = seed % 5 === 0
    this.#trace = trace
    this.#scene = {
      clock: this.clock,
      random: this.#random,
      scheduler: new SeededScheduler(this.#random, this.clock),
      fails: (probability) => this.#hasFaults && !this.#isCalm && this.#random.chance(probability),
      report: (problem) => void this.#problems.push(problem),
      note: (what, detail = '') => this.#note(what, detail),
    }
    this.#database = simulatedDatabase(this.#scene)
    this.#runs = new Runs(this.#scene, this.#database.rows)
    this.#doneMs = this.#random.pick([0, 5_000, 604_800_000, 604_800_000])
    const count = 2 + this.#random.below(2)
    for (let n = 0; n < count; n++) this.#instances.push(this.#instance(n))
  }

  /** Throws with everything that was wrong. */
  async run(): Promise<void> {
    // All of them have been there once: what they handle is known for seven days.
    this.#isCalm = true
    for (const one of this.#instances) await this.#now(this.#toggle(one))
    this.#isCalm = false
    const steps = 20 + this.#random.below(40)
    for (let step = 0; step < steps; step++) await this.#step()
    await this.#drain()
    await this.#check()
    if (this.#problems.length > 0) throw new Error(this.#problems.slice(0, 10).join('\n'))
  }

  #note(what: string, detail: string): void {
    this.tally.set(what, (this.tally.get(what) ?? 0) + 1)
    this.#trace?.push(`${this.clock.monotonic()} ${what} ${detail}`)
  }

  #instance(n: number): Instance {
    const never = Number.NEGATIVE_INFINITY
    const link = { name: `#${n}`, cutOff: false, isGone: false, troubleAt: never, renewalTroubleAt: never }
    const clock = new MortalClock(this.clock)
    const outbox = withSeededIds(this.#random, () => this.#outbox(link, clock))
    const { instanceId } = outbox
    const cutOffAt = this.clock.monotonic()
    const state = { started: false, toggledAt: never, cutOffAt, busy: new Set<Promise<unknown>>() }
    const instance = { n, outbox, instanceId, link, clock, ...state }
    this.#register(instance, n)
    return instance
  }

  #outbox(link: Link, clock: MortalClock): TestOutbox {
    return createTestOutbox({
      clock,
      store: this.#database.connect(link),
      dispatcher: {
        concurrency: 1 + this.#random.below(4),
        hotQueueSize: this.#random.pick([1, 3, 1_000]),
        coldQueueSize: this.#random.pick([2, 10, 1_000]),
        drainTimeoutMs: this.#random.pick([0, 200, 5_000]),
        unroutableGraceMs: 5_000,
      },
      poller: { leaseMs: LEASE_MS, pollIntervalMs: 1_000, batchSize: this.#random.pick([1, 5, 200]) },
      retry: { maxAttempts: MAX_ATTEMPTS, policy: fixedDelay(this.#random.pick([0, 50, 2_000])) },
      retention: { doneMs: this.#doneMs },
      // Who counts also asks for the lag, which costs time: one seed in four is enough.
      ...(this.#counts ? { metrics: this.#metrics(link) } : {}),
      onDead: ({ eventId }) => this.#note('announced dead', eventId),
    })
  }

  #metrics(link: Link): MetricsExporter {
    return { count: (name) => this.#note(`metric ${name}`, link.name), gauge() {}, duration() {} }
  }

  #register(instance: Instance, n: number): void {
    const { outbox } = instance
    const handle = (name: string) => (event: Incoming, told: Told) =>
      this.#handle(instance, name, event, told)
    outbox.on('everywhere', 'first', handle('first'), { timeoutMs: 400 })
    outbox.on('everywhere.*', 'pattern', handle('pattern'))
    outbox.on('everywhere', 'second', handle('second'))
    outbox.on(`only.${n % 2}`, 'only', handle('only'), { timeoutMs: 400 })
    const retry = { maxAttempts: 2, policy: fixedDelay(20) }
    outbox.on(`only.${n % 2}`, 'limited', handle('limited'), { concurrency: 1, retry })
    outbox.on(POISON, POISON, handle(POISON), { retry: { maxAttempts: 1_000, policy: fixedDelay(2_500) } })
    const once = { maxAttempts: KILLER_ATTEMPTS, policy: fixedDelay(20) }
    outbox.on(KILLER, KILLER, handle(KILLER), { retry: once })
    outbox.onBatch('everywhere', 'batch', { size: 3, waitMs: 200 }, (events, { attempts, signal }) => {
      this.#note(events.length > 1 ? 'batch of several' : 'batch of one', events[0]?.eventId ?? '')
      return Promise.all(
        events.map((event, at) =>
          handle('batch')(event, { attempt: attempts[at] as number, signal }).then(
            () => null,
            (error) => error,
          ),
        ),
      )
    })
  }

  async #step(): Promise<void> {
    const one = this.#random.pick(this.#instances)
    const { outbox } = one
    const dice = this.#random.below(20)
    if (dice < 9) this.#begin(one, this.#publish(outbox))
    else if (dice < 11) this.#begin(one, this.#toggle(one))
    else if (dice < 13) this.#cutOff(one)
    else if (dice < 14 && !one.started)
      this.#begin(
        one,
        outbox.poll().catch(() => {}),
      )
    else if (dice < 15)
      this.#begin(
        one,
        outbox.deadLetters.retry({ all: true }).catch(() => {}),
      )
    else if (dice < 17) this.#begin(one, this.#pauseOrResume(outbox))
    else if (dice < 18 && this.#hasFaults) this.#vanish(one)
    await this.clock.advance(this.#random.pick([0, 0, 1, 7, 60, 400, 1_500, 4_000]))
  }

  /** As by SIGKILL: nothing that it waits for comes, none of its timers fires, and another one takes its place. */
  #vanish(one: Instance): void {
    this.#note('vanish', one.link.name)
    one.link.isGone = true
    one.clock.vanish()
    for (const work of one.busy) this.#busy.delete(work)
    this.#runs.vanished(one)
    const heir = this.#instance(one.n)
    this.#instances[one.n] = heir
    if (one.started) this.#begin(heir, this.#toggle(heir))
  }

  #cutOff(one: Instance): void {
    if (!this.#hasFaults) return
    one.link.cutOff = !one.link.cutOff
    one.cutOffAt = this.clock.monotonic()
    one.link.troubleAt = one.cutOffAt
    this.#note(one.link.cutOff ? 'cut off' : 'connected', one.link.name)
  }

  async #pauseOrResume(outbox: TestOutbox): Promise<void> {
    const type = this.#random.pick([...TYPES, '*'])
    const { pausedSince } = this.#runs
    const isPaused = pausedSince.delete(type)
    if (!isPaused) pausedSince.set(type, this.clock.monotonic())
    this.#note(isPaused ? 'resume' : 'pause', type)
    // It may fail when it has been done: to read what is paused by now is a part of it.
    await (isPaused ? outbox.resume(type) : outbox.pause(type)).catch(() => {})
  }

  #begin(one: Instance, work: Promise<unknown>): void {
    this.#busy.add(work)
    one.busy.add(work)
    work.then(
      () => this.#busy.delete(work),
      (error: unknown) => one.link.isGone || this.#problems.push(`unexpected: ${error}`),
    )
  }

  async #toggle(one: Instance): Promise<void> {
    one.started = !one.started
    one.toggledAt = this.clock.monotonic()
    this.#runs.stopping(one)
    this.#note(one.started ? 'start' : 'stop', one.link.name)
    if (one.started) await one.outbox.start().catch(() => (one.started = false))
    else await one.outbox.stop()
  }

  /** One transaction with a few events, nested ones and rollbacks; it takes some time, or none. */
  async #publish(outbox: TestOutbox, parent?: string): Promise<void> {
    const kept = new Set<string>()
    const gone = new Set<string>()
    const pauseMs = this.#random.pick([0, 0, 0, 50, 2_000, 4_000])
    const fails = this.#random.chance(0.15)
    try {
      await outbox.transaction(async (tx) => {
        const count = 1 + this.#random.below(4)
        for (let n = 0; n < count; n++) {
          if (this.#random.chance(0.2)) {
            const nested = new Set<string>()
            const nestedFails = this.#random.chance(0.5)
            try {
              await tx.transaction(async (inner) => {
                nested.add(await inner.publish(this.#event(parent)))
                if (nestedFails) throw new Error('roll back to here')
              })
              for (const id of nested) kept.add(id)
            } catch {
              for (const id of nested) gone.add(id)
            }
          } else {
            const delayMs = this.#random.pick([0, 0, 0, 300])
            kept.add(await tx.publish(this.#event(parent), { delayMs }))
          }
        }
        if (pauseMs > 0) await this.#wait(pauseMs)
        if (fails) throw new Error('roll back')
      })
      for (const id of kept) this.#committed.add(id)
    } catch (error) {
      if (!(error instanceof CommitUnknownError)) for (const id of kept) gone.add(id)
    }
    for (const id of gone) this.#rolledBack.add(id)
  }

  #event(parent: string | undefined) {
    const type = this.#random.pick(TYPES)
    const orderingKey = this.#random.pick([undefined, undefined, 'k', 'l'])
    const eventId = `e${++this.#published}${parent ? ` of ${parent}` : ''}`
    return { type, eventId, ...(orderingKey ? { orderingKey } : {}) }
  }

  #wait(ms: number): Promise<void> {
    return new Promise((resolve) => this.clock.setTimer(resolve, ms))
  }

  async #handle(instance: Instance, name: string, event: Incoming, told: Told): Promise<void> {
    if (instance.link.isGone) return new Promise(() => {})
    const what = `${event.eventId} ${told.attempt} on ${instance.link.name}`
    this.#note(`handler ${name}`, what)
    try {
      await this.#runs.during(instance, name, event, told, () => this.#work(instance, event))
    } finally {
      if (told.signal.aborted) this.#note(`aborted ${(told.signal.reason as { code?: string }).code}`, what)
    }
  }

  async #work(instance: Instance, { eventId, eventType }: Incoming): Promise<void> {
    const { outbox } = instance
    if (eventType === KILLER) {
      this.#vanish(instance)
      return new Promise(() => {})
    }
    if (eventType === POISON && !this.#isPoisonLifted) throw new Error('poison')
    const dice = this.#isCalm ? 0 : this.#random.below(20)
    await this.#scene.scheduler.turn()
    if (dice === 19) throw new RetryAfter(50)
    if (dice >= 16) throw new Error('handler failed')
    if (dice >= 13) await this.#wait(this.#random.pick([100, 1_000, 8_000, 20_000]))
    if (dice === 12 && eventId.length < 30) await this.#publish(outbox, eventId)
  }

  /** Everything works again: all outboxes run until nothing is left, and then stop. */
  async #drain(): Promise<void> {
    this.#isCalm = true
    for (const { link } of this.#instances) link.cutOff = false
    this.#runs.pausedSince.clear()
    await this.clock.advance(20_000)
    const [first] = this.#instances as [Instance]
    for (const type of await this.#database.store.paused()) await this.#now(first.outbox.resume(type))
    for (const one of this.#instances) {
      one.started = true
      await this.#now(one.outbox.start())
    }
    await this.#drainAroundPoison()
    if (this.#hasKiller) await this.#drainAroundKiller()
    await this.#untilPendingAre([])
    for (const one of this.#instances) await this.#stopIdle(one.outbox)
  }

  /** One event that always fails holds up what is behind it in its key, and nothing else. */
  async #drainAroundPoison(): Promise<void> {
    const { outbox } = this.#instances[0] as Instance
    const ordered = this.#random.chance(0.5) ? { orderingKey: 'p' } : {}
    await this.#now(outbox.enqueue({ type: POISON, eventId: POISON, ...ordered }))
    await this.#now(outbox.enqueue({ type: 'everywhere', eventId: 'behind', ...ordered }))
    const stalled = ordered.orderingKey ? [POISON, 'behind'] : [POISON]
    await this.#untilPendingAre(stalled)
    const pending = this.#pending().toString()
    if (pending !== stalled.toString()) this.#problems.push(`I14: one poison event keeps pending: ${pending}`)
    if (this.#runs.handled.has('behind') === stalled.includes('behind'))
      this.#problems.push(`I14: the event behind the poison was handled: ${!stalled.includes('behind')}`)
    this.#isPoisonLifted = true
  }

  async #drainAroundKiller(): Promise<void> {
    await this.#untilPendingAre([])
    const vanished = () => this.tally.get('vanish') ?? 0
    const before = vanished()
    const events = aroundKiller(this.#random.chance(0.5))
    const { outbox } = this.#instances[0] as Instance
    const publishing = outbox.transaction(async (tx) => {
      for (const event of events) await tx.publish(event)
    })
    await this.#now(publishing)
    await this.#untilPendingAre([])
    const rowOf = (eventId: string) => this.#database.rows.rows.get(eventId)
    this.#problems.push(...killerProblems(events, rowOf, vanished() - before))
  }

  async #untilPendingAre(ids: readonly string[]): Promise<void> {
    for (let round = 0; round < 200; round++) {
      if (this.#pending().toString() === ids.toString()) return
      await this.clock.advance(3_000)
    }
  }

  /** With nothing to do a stop takes no time, and leaves no timer that would have to run off first. */
  async #stopIdle(outbox: TestOutbox): Promise<void> {
    const stopping = outbox.stop()
    if (await this.#now(stopping)) return
    this.#problems.push('I11: an idle outbox took its time to stop')
    await Promise.race([stopping, this.clock.advance(60_000)])
  }

  /** Lets the work go on as far as it can without time passing; true when that is to its end. */
  async #now(work: Promise<unknown>): Promise<boolean> {
    let isThrough = false
    const through = () => {
      isThrough = true
    }
    work.then(through, through)
    for (let n = 0; n < 20 && !isThrough; n++) await this.clock.advance(0)
    return isThrough
  }

  /** Read off the table itself: it is asked for often. */
  #pending(): string[] {
    return [...this.#database.rows.all].filter(isPending).map((row) => row.event.eventId)
  }

  async #check(): Promise<void> {
    const rows = await this.#database.store.list(ALL)
    const { deleted } = this.#database.rows
    const { handled } = this.#runs
    const present = new Set([...rows.map((row) => row.eventId as string), ...deleted])
    const wrong = (text: string) => this.#problems.push(text)
    for (const row of rows) {
      const { eventId, status, lastError, attempts, eventType } = row
      this.#note(`ended ${status}`, `${eventId} ${attempts} ${lastError}`)
      const mostAttempts = eventType === POISON ? Number.POSITIVE_INFINITY : MAX_ATTEMPTS
      for (const text of problemsOf(row, { isHandled: handled.has(eventId), mostAttempts })) wrong(text)
    }
    for (const id of deleted) if (!handled.has(id)) wrong(`I1: ${id} was deleted and never handled`)
    for (const id of this.#committed) if (!present.has(id)) wrong(`I1: ${id} was committed and is gone`)
    for (const id of this.#rolledBack) {
      if (present.has(id)) wrong(`I2: ${id} was rolled back and is there`)
      if (handled.has(id)) wrong(`I2: ${id} was rolled back and handled`)
    }
    if (this.#busy.size > 0) wrong(`${this.#busy.size} calls have not returned`)
    if (this.clock.timerCount > 0) wrong(`I11: ${this.clock.timerCount} timers are left`)
    for (const place of this.#runs.unfinished()) wrong(`${place} has not ended`)
  }
}
