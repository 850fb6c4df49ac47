import { describe, expect, it } from 'vitest'
import { randomOf } from '../../test/support/random.js'
import { fixedDelay } from '../core/backoff.js'
import { CommitUnknownError, RetryAfter } from '../core/errors.js'
import type { EventFilter, EventRecord } from '../store.js'
import { type MemoryStore, memoryStore } from '../stores/memory/index.js'
import { createTestOutbox, type TestOutbox } from '../testing/test-outbox.js'
import { VirtualClock } from '../testing/virtual-clock.js'

/** More by SIMULATION_SEEDS=5000, one alone by SIMULATION_SEED=17. */
const SEEDS = Number(process.env.SIMULATION_SEEDS ?? 300)
const ONLY = process.env.SIMULATION_SEED

const LEASE_MS = 3_000
const MAX_ATTEMPTS = 5
/** A simulation needs a few hundred. */
const MOST_CALLS = 20_000
const TYPES = ['everywhere', 'everywhere.else', 'only.0', 'only.1', 'nowhere']
/** What is paused for longer than this is known to every instance that reaches the database. */
const PAUSE_KNOWN_MS = 10_000

interface Run {
  readonly eventId: string
  readonly instance: string
  readonly signal: AbortSignal
  /** Its outbox was stopped since, and may have given it up. */
  isGivenUp: boolean
}

interface Told {
  readonly attempt: number
  readonly signal: AbortSignal
}

interface Incoming {
  readonly eventId: string
  readonly eventType: string
  readonly orderingKey?: string | undefined
}

/** One "database", two or three outboxes on it, and everything that can go wrong at once. */
class World {
  readonly clock = new VirtualClock()
  readonly #random: ReturnType<typeof randomOf>
  readonly #database: MemoryStore
  readonly #outboxes: { readonly outbox: TestOutbox; started: boolean; cutOff: boolean }[] = []
  readonly #problems: string[] = []
  readonly #committed = new Set<string>()
  readonly #rolledBack = new Set<string>()
  /** By event and handler, and by ordering key. */
  readonly #running = new Map<string, Run[]>()
  readonly #pausedSince = new Map<string, number>()
  readonly #attempts = new Map<string, number>()
  readonly #handled = new Set<string>()
  readonly #busy = new Set<Promise<unknown>>()
  /** When an instance last failed to renew its leases, and when it was last cut off. */
  readonly #troubleAt = new Map<string, number>()
  readonly #cutOffAt = new Map<string, number>()
  #published = 0
  #calls = 0
  #isCalm = false

  constructor(seed: number) {
    this.#random = randomOf(seed)
    this.#database = memoryStore({
      clock: this.clock,
      onCall: (method) => {
        // The reply to the commit is lost, or the commit itself fails.
        if ((method === 'committed' || method === 'commit') && this.#fails(0.04))
          throw new Error(`lost: ${method}`)
      },
    })
    const count = 2 + this.#random.below(2)
    for (let n = 0; n < count; n++) this.#outboxes.push(this.#outbox(n))
  }

  /** Throws with everything that was wrong. */
  async run(): Promise<void> {
    // All of them have been there once: what they handle is known for seven days.
    this.#isCalm = true
    for (const one of this.#outboxes) await this.#toggle(one)
    this.#isCalm = false
    const steps = 20 + this.#random.below(40)
    for (let step = 0; step < steps; step++) await this.#step()
    await this.#drain()
    await this.#check()
    if (this.#problems.length > 0) throw new Error(this.#problems.slice(0, 10).join('\n'))
  }

  #fails(probability: number): boolean {
    return !this.#isCalm && this.#random.chance(probability)
  }

  #outbox(n: number) {
    const state = { outbox: undefined as unknown as TestOutbox, started: false, cutOff: false }
    const { clock } = this
    state.outbox = createTestOutbox({
      clock,
      store: this.#connection(state),
      dispatcher: {
        concurrency: 1 + this.#random.below(4),
        hotQueueSize: this.#random.pick([1, 3, 1_000]),
        coldQueueSize: this.#random.pick([2, 10, 1_000]),
        drainTimeoutMs: this.#random.pick([0, 200, 5_000]),
        unroutableGraceMs: 20_000,
      },
      poller: { leaseMs: LEASE_MS, pollIntervalMs: 1_000, batchSize: this.#random.pick([1, 5, 200]) },
      retry: { maxAttempts: MAX_ATTEMPTS, policy: fixedDelay(this.#random.pick([0, 50, 2_000])) },
    })
    const handle = (name: string) => (event: Incoming, context: Told) =>
      this.#handle(state.outbox, name, event, context)
    state.outbox.on('everywhere', 'first', handle('first'), { timeoutMs: 400 })
    state.outbox.on('everywhere.*', 'pattern', handle('pattern'))
    state.outbox.on('everywhere', 'second', handle('second'))
    state.outbox.on(`only.${n % 2}`, 'only', handle('only'), { timeoutMs: 400 })
    const retry = { maxAttempts: 2, policy: fixedDelay(20) }
    state.outbox.on(`only.${n % 2}`, 'limited', handle('limited'), { concurrency: 1, retry })
    state.outbox.onBatch('everywhere', 'batch', { size: 3, waitMs: 200 }, (events, { attempts, signal }) =>
      Promise.all(
        events.map((event, at) =>
          handle('batch')(event, { attempt: attempts[at] as number, signal }).then(
            () => null,
            (error) => error,
          ),
        ),
      ),
    )
    return state
  }

  /** The way of one outbox to the database: calls fail before or after they took effect, or all of them. */
  #connection(state: { readonly outbox: TestOutbox; cutOff: boolean }): MemoryStore {
    const flaky = new Set([
      ...['claim', 'claimOrdered', 'claimUnroutable', 'settleIfLeased', 'renewIfLeased'],
      ...['append', 'findPresent', 'ring', 'heartbeat', 'instances', 'pruneDone', 'transaction'],
    ])
    return new Proxy(this.#database, {
      get: (target, name) => {
        const value: unknown = Reflect.get(target, name, target)
        if (name === 'retryDead') return (filter: EventFilter) => this.#retryDead(filter)
        if (typeof value !== 'function' || !flaky.has(String(name))) return value
        return async (...args: unknown[]): Promise<unknown> => {
          if (++this.#calls > MOST_CALLS) throw new Error('calls without end')
          const fail = (how: string) => {
            if (name === 'renewIfLeased') this.#troubleAt.set(state.outbox.instanceId, this.clock.monotonic())
            throw new Error(`${how}: ${String(name)}`)
          }
          if (state.cutOff || this.#fails(0.03)) fail('unreachable')
          const result: unknown = await value.apply(target, args)
          if (name !== 'transaction' && (state.cutOff || this.#fails(0.02))) fail('reply lost')
          return result
        }
      },
    })
  }

  /** They begin anew: the only way in which the attempts of an event become fewer. */
  async #retryDead(filter: EventFilter): Promise<readonly string[]> {
    const ids = await this.#database.retryDead(filter)
    for (const id of ids) this.#attempts.delete(id)
    return ids
  }

  async #step(): Promise<void> {
    const one = this.#random.pick(this.#outboxes)
    const dice = this.#random.below(20)
    if (dice < 9) this.#begin(this.#publish(one.outbox))
    else if (dice < 11) this.#begin(this.#toggle(one))
    else if (dice < 13) this.#cutOff(one)
    else if (dice < 14 && !one.started) this.#begin(one.outbox.poll().catch(() => {}))
    else if (dice < 15) this.#begin(one.outbox.deadLetters.retry({ all: true }).catch(() => {}))
    else if (dice < 17) this.#begin(this.#pauseOrResume(one.outbox))
    await this.clock.advance(this.#random.pick([0, 0, 1, 7, 60, 400, 1_500, 4_000]))
  }

  #cutOff(one: { readonly outbox: TestOutbox; cutOff: boolean }): void {
    one.cutOff = !one.cutOff
    this.#cutOffAt.set(one.outbox.instanceId, this.clock.monotonic())
  }

  async #pauseOrResume(outbox: TestOutbox): Promise<void> {
    const type = this.#random.pick([...TYPES, '*'])
    if (this.#pausedSince.delete(type)) await outbox.resume(type)
    else {
      await outbox.pause(type)
      this.#pausedSince.set(type, this.clock.monotonic())
    }
  }

  #begin(work: Promise<unknown>): void {
    this.#busy.add(work)
    work.then(
      () => this.#busy.delete(work),
      (error: unknown) => this.#problems.push(`unexpected: ${error}`),
    )
  }

  async #toggle(one: { readonly outbox: TestOutbox; started: boolean }): Promise<void> {
    one.started = !one.started
    for (const run of [...this.#running.values()].flat()) {
      if (run.instance === one.outbox.instanceId) run.isGivenUp = true
    }
    if (one.started) await one.outbox.start().catch(() => (one.started = false))
    else await one.outbox.stop()
  }

  /** One transaction with a few events, nested ones and rollbacks; it takes some time, or none. */
  async #publish(outbox: TestOutbox, parent?: string): Promise<void> {
    const kept = new Set<string>()
    const gone = new Set<string>()
    const pause = this.#random.pick([0, 0, 0, 50, 2_000, 4_000])
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
        if (pause > 0) await new Promise<void>((resolve) => this.clock.setTimer(resolve, pause))
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

  async #handle(outbox: TestOutbox, name: string, event: Incoming, context: Told): Promise<void> {
    const { eventId, orderingKey } = event
    const key = `${eventId} by ${name}`
    this.#handled.add(eventId)
    const instance = outbox.instanceId
    const others = this.#running.get(key) ?? []
    for (const other of others) {
      if (other.instance === instance) this.#problems.push(`${key} runs beside itself on one instance`)
      if (this.#isInGoodShape(other)) this.#problems.push(`${key} runs on two instances`)
    }
    const ofKey = orderingKey === undefined ? [] : (this.#running.get(orderingKey) ?? [])
    for (const other of ofKey) {
      if (other.eventId !== eventId && (this.#isInGoodShape(other) || this.#holdsItsKey(other)))
        this.#problems.push(`${key} runs beside ${other.eventId} of the same key`)
    }
    this.#checkPause(event, instance)
    const before = this.#attempts.get(eventId) ?? 0
    if (context.attempt < before)
      this.#problems.push(`${eventId}: attempt ${context.attempt} after ${before}`)
    this.#attempts.set(eventId, context.attempt)
    const run = { eventId, instance, signal: context.signal, isGivenUp: false }
    this.#running.set(key, [...others, run])
    if (orderingKey !== undefined) this.#running.set(orderingKey, [...ofKey, run])
    try {
      const [row] = await this.#database.list({ eventIds: [eventId] })
      this.#checkLease(row, key, instance)
      await this.#work(outbox, eventId)
    } finally {
      for (const one of [key, orderingKey ?? key]) {
        const left = (this.#running.get(one) ?? []).filter((other) => other !== run)
        this.#running.set(one, left)
      }
    }
  }

  /** It was not told that its lease is lost, and could renew it: nobody else may do its work. */
  #isInGoodShape({ instance, signal }: Run): boolean {
    const trouble = this.clock.monotonic() - (this.#troubleAt.get(instance) ?? -1e9)
    return !signal.aborted && trouble > LEASE_MS * 2
  }

  /** Its time is over, which ends its signal and not its lease: the key waits for it all the same. */
  #holdsItsKey({ instance, signal, isGivenUp }: Run): boolean {
    const calm = this.clock.monotonic() - (this.#troubleAt.get(instance) ?? -1e9) > LEASE_MS * 4
    return (signal.reason as { code?: string } | undefined)?.code === 'HANDLER_TIMEOUT' && !isGivenUp && calm
  }

  #checkPause({ eventId, eventType }: Incoming, instance: string): void {
    const known = Math.min(this.#cutOffAt.get(instance) ?? 0, this.clock.monotonic())
    for (const type of [eventType, '*']) {
      const since = Math.max(known, this.#pausedSince.get(type) ?? Number.POSITIVE_INFINITY)
      if (this.clock.monotonic() - since > PAUSE_KNOWN_MS)
        this.#problems.push(`${eventId} is handled although ${type} is paused`)
    }
  }

  /** Whoever runs an event holds its lease when it starts, so that nobody else does. */
  #checkLease(row: EventRecord | undefined, key: string, instance: string): void {
    const held =
      row?.lockedBy?.startsWith(`${instance}:`) && (row.lockedUntil?.getTime() ?? 0) >= this.clock.now()
    if (!held)
      this.#problems.push(`${key} was started on ${instance} without its lease: ${JSON.stringify(row)}`)
  }

  async #work(outbox: TestOutbox, eventId: string): Promise<void> {
    const dice = this.#isCalm ? 0 : this.#random.below(20)
    const wait = (ms: number) => new Promise<void>((resolve) => this.clock.setTimer(resolve, ms))
    if (dice === 19) throw new RetryAfter(50)
    if (dice >= 16) throw new Error('handler failed')
    if (dice >= 13) await wait(this.#random.pick([100, 1_000, 8_000]))
    if (dice === 12 && eventId.length < 30) await this.#publish(outbox, eventId)
  }

  /** Everything works again: all outboxes run until nothing is left, and then stop. */
  async #drain(): Promise<void> {
    this.#isCalm = true
    for (const one of this.#outboxes) one.cutOff = false
    this.#pausedSince.clear()
    for (const type of await this.#database.paused()) await this.#outboxes[0]?.outbox.resume(type)
    await this.clock.advance(20_000)
    for (const one of this.#outboxes) {
      await one.outbox.start()
      one.started = true
    }
    for (let round = 0; round < 200 && (await this.#pending()).length > 0; round++) {
      await this.clock.advance(5_000)
    }
    for (const one of this.#outboxes) await this.#stopIdle(one.outbox)
  }

  /** With nothing to do a stop takes no time, and leaves no timer that would have to run off first. */
  async #stopIdle(outbox: TestOutbox): Promise<void> {
    let stopped = false
    const stopping = outbox.stop().then(() => {
      stopped = true
    })
    for (let n = 0; n < 5; n++) await this.clock.advance(0)
    if (stopped) return
    this.#problems.push('an idle outbox took its time to stop')
    await Promise.race([stopping, this.clock.advance(60_000)])
  }

  async #pending(): Promise<EventRecord[]> {
    const rows = await this.#database.list({ limit: 100_000 })
    return rows.filter((row) => row.status === 'NEW' || row.status === 'RETRY')
  }

  async #check(): Promise<void> {
    const rows = await this.#database.list({ limit: 100_000 })
    const present = new Set(rows.map((row) => row.eventId))
    const wrong = (text: string) => this.#problems.push(text)
    for (const row of rows) {
      const { eventId, status, lastError, attempts, eventType } = row
      if (status === 'NEW' || status === 'RETRY')
        wrong(`${eventId} is still ${status}: ${JSON.stringify(row)}`)
      if (status === 'DEAD' && !lastError) wrong(`${eventId} is dead without a reason`)
      if (status === 'DONE' && !this.#handled.has(eventId)) wrong(`${eventId} is done and was never handled`)
      if (attempts > MAX_ATTEMPTS) wrong(`${eventId} was tried ${attempts} times`)
      if (status === 'DEAD' && (eventType === 'nowhere') !== /Unroutable/.test(lastError ?? '')) {
        wrong(`${eventId} of type ${eventType} is dead for another reason: ${lastError}`)
      }
    }
    for (const id of this.#committed) if (!present.has(id)) wrong(`${id} was committed and is gone`)
    for (const id of this.#rolledBack) {
      if (present.has(id)) wrong(`${id} was rolled back and is there`)
      if (this.#handled.has(id)) wrong(`${id} was rolled back and handled`)
    }
    if (this.#calls > MOST_CALLS) wrong('the database was called without end')
    if (this.#busy.size > 0) wrong(`${this.#busy.size} calls have not returned`)
    if (this.clock.timerCount > 0) wrong(`${this.clock.timerCount} timers are left`)
    for (const [key, runs] of this.#running) if (runs.length > 0) wrong(`${key} has not ended`)
  }
}

describe('a random life of several outboxes on one database', () => {
  it('loses nothing, announces nothing that was rolled back, and leaves nothing behind', {
    timeout: 600_000,
  }, async () => {
    const failed: string[] = []
    const seeds = ONLY ? [Number(ONLY)] : Array.from({ length: SEEDS }, (_, n) => n + 1)
    for (const seed of seeds) {
      await new World(seed).run().catch((error) => failed.push(`SIMULATION_SEED=${seed}: ${error.message}`))
      if (failed.length >= 3) break
    }
    expect(failed.join('\n\n')).toBe('')
  })
})
