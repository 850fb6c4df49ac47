import type { Link, Scene, WatchedDatabase } from './simulation-store.js'

export const LEASE_MS = 3_000
/** What is paused for longer than this is known to every instance that reaches the database. */
const PAUSE_KNOWN_MS = 10_000

export interface Told {
  readonly attempt: number
  readonly signal: AbortSignal
}

export interface Incoming {
  readonly eventId: string
  readonly eventType: string
  readonly orderingKey?: string | undefined
}

/** An instance as the checks see it. */
export interface Runner {
  readonly instanceId: string
  readonly link: Link
  /** When it was last started or stopped, and when it was last cut off or connected. */
  toggledAt: number
  cutOffAt: number
}

interface Run {
  readonly eventId: string
  readonly runner: Runner
  readonly signal: AbortSignal
  readonly startedAt: number
  /** Its outbox was stopped since, and may have given it up. */
  isGivenUp: boolean
}

/** Every call of a handler, checked when it starts: order, leases, overlaps, duplicates, attempts and pauses. */
export class Runs {
  readonly #scene: Scene
  readonly #rows: WatchedDatabase
  /** By event and handler, and by ordering key. */
  readonly #running = new Map<string, Run[]>()
  readonly #succeeded = new Map<string, Run>()
  readonly #attempts = new Map<string, number>()
  readonly handled = new Set<string>()
  readonly pausedSince = new Map<string, number>()

  constructor(scene: Scene, rows: WatchedDatabase) {
    this.#scene = scene
    this.#rows = rows
    rows.onRetried = (eventId) => this.#retriedByHand(eventId)
  }

  async during(
    runner: Runner,
    name: string,
    event: Incoming,
    told: Told,
    work: () => Promise<void>,
  ): Promise<void> {
    const { eventId, orderingKey } = event
    const key = `${eventId} by ${name}`
    this.#checkOverlap(key, event, runner)
    this.#checkDuplicate(key)
    this.#checkPause(event, runner)
    this.#checkAttempt(eventId, told.attempt)
    this.#checkLease(key, eventId, runner)
    const overtaken = this.#rows.overtaken(eventId, (id) => this.handled.has(id))
    for (const other of overtaken) this.#wrong(`I3: ${key} went ahead of ${other}`)
    this.handled.add(eventId)
    const startedAt = this.#scene.clock.monotonic()
    const run = { eventId, runner, signal: told.signal, startedAt, isGivenUp: false }
    const places = orderingKey === undefined ? [key] : [key, `key ${orderingKey}`]
    for (const place of places) this.#running.set(place, [...(this.#running.get(place) ?? []), run])
    try {
      await work()
      if (!told.signal.aborted && !runner.link.isGone) this.#succeeded.set(key, run)
    } finally {
      for (const place of places) {
        const left = (this.#running.get(place) ?? []).filter((other) => other !== run)
        this.#running.set(place, left)
      }
    }
  }

  /** It runs nothing any more. */
  vanished(runner: Runner): void {
    for (const [place, runs] of this.#running) {
      const left = runs.filter((run) => run.runner !== runner)
      this.#running.set(place, left)
    }
  }

  /** What this instance runs may be given up from now on. */
  stopping(runner: Runner): void {
    for (const run of [...this.#running.values()].flat()) if (run.runner === runner) run.isGivenUp = true
  }

  /** They begin anew: the only way in which the attempts of an event become fewer. */
  #retriedByHand(eventId: string): void {
    this.#attempts.delete(eventId)
    for (const [key, run] of this.#succeeded) if (run.eventId === eventId) this.#succeeded.delete(key)
  }

  unfinished(): string[] {
    return [...this.#running].flatMap(([place, runs]) => (runs.length > 0 ? [place] : []))
  }

  #wrong(problem: string): void {
    this.#scene.report(problem)
  }

  #checkOverlap(key: string, { eventId, orderingKey }: Incoming, runner: Runner): void {
    for (const other of this.#running.get(key) ?? []) {
      if (other.runner === runner) this.#wrong(`I4: ${key} runs beside itself on one instance`)
      if (this.#isInGoodShape(other)) this.#wrong(`I4: ${key} runs on two instances`)
    }
    for (const other of this.#running.get(`key ${orderingKey}`) ?? []) {
      if (other.eventId === eventId) continue
      if (other.runner === runner) this.#wrong(`I3: ${key} runs beside ${other.eventId} on one instance`)
      if (this.#isInGoodShape(other) || this.#holdsItsKey(other))
        this.#wrong(`I3: ${key} runs beside ${other.eventId} of the same key`)
    }
  }

  /** It was not told that its lease is lost, and could renew it: nobody else may do its work. */
  #isInGoodShape({ runner, signal }: Run): boolean {
    return !signal.aborted && this.#since(runner.link.renewalTroubleAt) > LEASE_MS * 2
  }

  /** Its time is over, which ends its signal and not its lease, unless that could not be renewed: the key waits for it. */
  #holdsItsKey({ runner, signal, isGivenUp, startedAt }: Run): boolean {
    const { renewalTroubleAt } = runner.link
    const isCalm = renewalTroubleAt < startedAt && this.#since(renewalTroubleAt) > LEASE_MS * 4
    return (
      (signal.reason as { code?: string } | undefined)?.code === 'HANDLER_TIMEOUT' && !isGivenUp && isCalm
    )
  }

  #since(moment: number): number {
    return this.#scene.clock.monotonic() - moment
  }

  /** Done once and again only if the first outcome may have been lost on its way. */
  #checkDuplicate(key: string): void {
    const run = this.#succeeded.get(key)
    if (!run) return
    const { link, toggledAt } = run.runner
    const isExcused = link.cutOff || link.isGone || Math.max(link.troubleAt, toggledAt) >= run.startedAt
    if (!isExcused) this.#wrong(`I5: ${key} is called again although it has succeeded`)
  }

  #checkPause({ eventId, eventType }: Incoming, { cutOffAt }: Runner): void {
    for (const type of [eventType, '*']) {
      const since = Math.max(cutOffAt, this.pausedSince.get(type) ?? Number.POSITIVE_INFINITY)
      if (this.#since(since) > PAUSE_KNOWN_MS) this.#wrong(`${eventId} is handled although ${type} is paused`)
    }
  }

  #checkAttempt(eventId: string, attempt: number): void {
    const before = this.#attempts.get(eventId) ?? 0
    if (attempt < before) this.#wrong(`I7: ${eventId}: attempt ${attempt} after ${before}`)
    this.#attempts.set(eventId, attempt)
  }

  /** Whoever runs an event holds its lease when it starts, so that nobody else does. */
  #checkLease(key: string, eventId: string, { instanceId }: Runner): void {
    const row = this.#rows.rows.get(eventId)
    const isHeld =
      row?.lockedBy?.startsWith(`${instanceId}:`) === true && row.lockedUntil >= this.#scene.clock.now()
    if (!isHeld) this.#wrong(`I4: ${key} was started on ${instanceId} without its lease: ${row?.lockedBy}`)
  }
}
