import type { FinalState, Line } from '../../faults/lib/checker.js'

export type EventState = FinalState['rows'][number]['status']

/** What one event is in the end, and who published it. */
export interface Told {
  readonly key?: string | null
  readonly version?: number | null
  readonly type?: string
  readonly status?: EventState
  readonly lastError?: string | null
}

const LEASE_MS = 1_000

/**
 * Writes a small history by hand: journals with a time that is set by `at`, and the final state that goes with them.
 * `commit`, `claim`, `run` and `settle` are the steps of a clean life; a test leaves some out or says them twice.
 */
export class JournalWriter {
  readonly lines: Line[] = []
  readonly rows: FinalState['rows'][number][] = []
  readonly business: FinalState['business'][number][] = []
  readonly effects: FinalState['effects'][number][] = []
  readonly poison: string[] = []
  readonly handlers: Record<string, string[]> = { plain: ['note'], pair: ['note', 'other'], once: ['count'] }
  #now = 0
  #transactions = 0
  #calls = 0
  #runs = 0

  /** Milliseconds of the next line; each line takes one. */
  at(now: number): this {
    this.#now = now
    return this
  }

  get time(): number {
    return this.#now
  }

  write(proc: string, what: string, fields: Record<string, unknown> = {}): this {
    this.lines.push({ at: this.#now++, proc, what, ...fields })
    return this
  }

  campaign(what: string, fields: Record<string, unknown> = {}): this {
    return this.write('campaign', what, fields)
  }

  publish(eventId: string, fate: string, told: Told = {}, more: Record<string, unknown> = {}): this {
    const tx = `producer-1.1/${++this.#transactions}`
    const { key = null, version = null } = told
    this.write('producer-1.1', 'published', { tx, eventId, key, version, ...more })
    return this.write('producer-1.1', fate, { tx })
  }

  commit(eventId: string, told: Told = {}): this {
    return this.publish(eventId, 'committed', told).exists(eventId, told)
  }

  /** The event and its business row are there in the end. */
  exists(eventId: string, told: Told = {}): this {
    const { key = null, version = null } = told
    this.business.push({ eventId, key, version })
    return this.row(eventId, told)
  }

  row(eventId: string, { key = null, type = 'plain', status = 'DONE', lastError = null }: Told = {}): this {
    const seq = this.rows.length + 1
    this.rows.push({
      ...{ eventId, seq, status, attempts: 0, orderingKey: key, lockedBy: null, lastError, eventType: type },
    })
    return this
  }

  claim(proc: string, token: string, eventId: string, attempts = 0, leaseMs = LEASE_MS): this {
    const asked = this.#now++
    return this.write(proc, 'claimed', { token, leaseMs, asked, events: [[eventId, attempts]] })
  }

  renew(proc: string, token: string, eventId: string, leaseMs = LEASE_MS): this {
    const asked = this.#now++
    return this.write(proc, 'renewed', { leaseMs, asked, claims: [[eventId, token]] })
  }

  start(proc: string, eventId: string, handler = 'note', more: Record<string, unknown> = {}): number {
    const run = ++this.#runs
    this.write(proc, 'start', { run, eventId, handler, attempt: 1, payloadOk: true, ...more })
    return run
  }

  end(proc: string, run: number, ok = true): this {
    return this.write(proc, 'end', { run, ok })
  }

  run(proc: string, eventId: string, handler = 'note', ok = true): this {
    return this.end(proc, this.start(proc, eventId, handler), ok)
  }

  settling(proc: string, token: string, eventId: string, outcome = 'done'): number {
    const n = ++this.#calls
    this.write(proc, 'settling', { n, settlements: [[eventId, token, outcome]] })
    return n
  }

  settle(proc: string, token: string, eventId: string, outcome = 'done', counts = true): this {
    const n = this.settling(proc, token, eventId, outcome)
    return this.write(proc, 'settled', { n, events: counts ? [eventId] : [] })
  }

  /** Everything that a healthy worker does with one event. */
  handle(proc: string, token: string, eventId: string, handler = 'note'): this {
    return this.claim(proc, token, eventId).run(proc, eventId, handler).settle(proc, token, eventId)
  }

  effect(handler: string, eventId: string, count = 1): this {
    this.effects.push({ handler, eventId, count })
    return this
  }

  exited(child: string, fields: Record<string, unknown> = { code: 0, signal: null, meant: true }): this {
    return this.campaign('exited', { child, ...fields })
  }

  killed(child: string): this {
    return this.exited(child, { code: null, signal: 'SIGKILL', meant: true })
  }

  get state(): FinalState {
    const { rows, business, effects, handlers, poison } = this
    return { rows, business, effects, handlers, poison, exactlyOnce: ['count'] }
  }
}
