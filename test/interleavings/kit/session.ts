import { EventEnvelope } from '../../../src/core/envelope.js'
import type { ClaimedRow, OutboxStore, Settlement, TypeFilter } from '../../../src/store.js'
import { type Act, type Got, type Held, type NewRow, type Outcome, RUN_LENGTH } from './model.js'
import { LedTransaction } from './transaction.js'
import { LEASE_MS, type OpenCall, type Seat, type World } from './world.js'

type Claiming = 'claim' | 'claim fresh' | 'claim keys'
type Settling = 'done' | 'done and gone' | 'retry' | 'dead' | 'halt' | 'release'
type Burying = 'retryDead' | 'discardDead'
/** What is one call of the store, and can be held open before its commit. */
export type CallStep = Claiming | 'renew' | Settling | Burying
/**
 * `open` does the work of a call and `close` commits it; `stop 3` stops before its third statement. `share A` takes over what A believes to hold, and
 * `guess x` makes a session believe that it holds x. Who holds nothing settles and renews nothing.
 */
export type Step =
  | CallStep
  | `open ${CallStep}`
  | `stop ${number} ${CallStep}`
  | 'close'
  | `append ${string}`
  | `hot ${string}`
  | 'savepoint'
  | 'back to savepoint'
  | 'commit'
  | 'rollback'
  | 'time passes'
  | `share ${string}`
  | `guess ${string}`

/** The events of one run: of a type of their own, so that other runs do not see them. */
export class Events {
  readonly type: string
  readonly key: string | null
  readonly #events = new Map<string, EventEnvelope>()

  constructor(type: string, isOrdered: boolean) {
    this.type = type
    this.key = isOrdered ? type : null
  }

  get accept(): TypeFilter {
    return { names: [this.type], versions: [1], prefixes: [] }
  }

  get ids(): string[] {
    return [...this.#events.values()].map((event) => event.eventId)
  }

  named(name: string): EventEnvelope {
    let event = this.#events.get(name)
    if (!event) {
      const ordering = this.key === null ? {} : { orderingKey: this.key }
      event = EventEnvelope.create({ eventType: this.type, payload: { name }, ...ordering })
      this.#events.set(name, event)
    }
    return event
  }

  nameOf(id: string): string {
    for (const [name, event] of this.#events) if (event.eventId === id) return name
    return `a stranger, ${id}`
  }
}

/** One session within one run: what it believes to hold, and its transaction. */
export class Session {
  readonly name: string
  readonly #world: World
  readonly #seat: Seat
  readonly #events: Events
  #held: readonly Held[] = []
  #transaction: LedTransaction | null = null
  #written: (Omit<NewRow, 'isExpired'> & { readonly bornAt: number })[] = []
  #kept = 0
  #calls = 0
  #open: OpenCall<Act> | null = null
  /** Its transaction found an id taken. */
  hasMetDuplicate = false

  constructor(name: string, world: World, seat: Seat, events: Events) {
    this.name = name
    this.#world = world
    this.#seat = seat
    this.#events = events
  }

  get held(): readonly Held[] {
    return this.#held
  }

  /** Something of it is not committed, and may keep others waiting. */
  get mayBlock(): boolean {
    return this.#transaction !== null || this.#open !== null
  }

  isWaiting(): Promise<boolean> {
    return this.#seat.isWaiting()
  }

  /** A token that never was one. */
  guess(name: string): void {
    this.#held = [{ name, token: `${this.name}:never`, handledBy: [] }]
  }

  share(other: Session): void {
    this.#held = other.held
  }

  /** Ends what is open after a failure, so that others do not wait for it. */
  async abandon(): Promise<void> {
    await Promise.allSettled([this.#transaction?.end('rollback'), this.#open?.commit()])
  }

  /** The call and its answer, or null when it is not the end of one. */
  async run(step: Step): Promise<Act | null> {
    if (step === 'close') return this.#close()
    if (step.startsWith('open ')) return this.#opened(step.slice(5) as CallStep)
    if (step.startsWith('stop ')) return this.#opened(step.slice(7) as CallStep, Number(step[5]))
    if (step.startsWith('append ')) return this.#append(step.slice(7), null)
    if (step.startsWith('hot ')) return this.#append(step.slice(4), `${this.name}:hot`)
    switch (step) {
      case 'savepoint':
        this.#kept = this.#written.length
        await this.#transaction?.savepoint()
        return null
      case 'back to savepoint':
        await this.#transaction?.backToSavepoint()
        this.#written = this.#written.slice(0, this.#kept)
        return null
      case 'commit':
      case 'rollback':
        return this.#end(step)
      case 'time passes':
        await this.#world.passTime(this.#events.type)
        return { kind: 'time passes' }
      default:
        if (isOfHeld(step) && this.#held.length === 0) return null
        return this.#heard(await this.#call(this.#seat.store, step as CallStep))
    }
  }

  async #append(name: string, token: string | null): Promise<Act> {
    this.#transaction ??= new LedTransaction(this.#seat.store)
    const event = this.#events.named(name)
    const bornAt = this.#world.timesPassed()
    const row = { event, token }
    const options = { leaseMs: LEASE_MS, onDuplicate: 'error' } as const
    const { seqs, duplicates } = await this.#transaction.run(({ client }) =>
      this.#seat.store.append(client, [row], options),
    )
    const seq = seqs.get(event.eventId)
    if (seq !== undefined) this.#written.push({ name, key: this.#events.key, seq, token, bornAt })
    else this.hasMetDuplicate = true
    if (seq !== undefined && token !== null) this.#held = [{ name, token, handledBy: [] }]
    return { kind: 'append', names: [name], duplicates: duplicates.map((id) => this.#events.nameOf(id)) }
  }

  async #end(how: 'commit' | 'rollback'): Promise<Act> {
    await this.#transaction?.end(how)
    const written = how === 'commit' ? this.#written : []
    const now = this.#world.timesPassed()
    const rows = written.map(({ bornAt, ...row }) => ({
      ...row,
      isExpired: row.token !== null && now > bornAt,
    }))
    this.#transaction = null
    this.#written = []
    this.hasMetDuplicate = false
    return { kind: 'commit', rows }
  }

  async #opened(step: CallStep, stopBefore?: number): Promise<null> {
    const { open, stop } = this.#seat
    const call = (store: OutboxStore) => this.#call(store, step)
    this.#open = (stopBefore === undefined ? open?.(call) : stop?.(call, stopBefore)) ?? null
    if (!this.#open) throw new Error(`${this.#world.name} cannot hold a call open`)
    await this.#open.ran
    return null
  }

  async #close(): Promise<Act> {
    if (!this.#open) throw new Error('nothing is open')
    const act = await this.#open.commit()
    this.#open = null
    return this.#heard(act)
  }

  #heard(act: Act): Act {
    if ('got' in act && act.got.length > 0) this.#held = act.got
    return act
  }

  async #call(store: OutboxStore, step: CallStep): Promise<Act> {
    switch (step) {
      case 'claim':
      case 'claim fresh':
      case 'claim keys':
        return this.#claim(store, step)
      case 'renew': {
        const claims = this.#held
        const renewed = await store.renewIfLeased(claims.map(this.#claimOf), LEASE_MS)
        return { kind: 'renew', claims, names: this.#names(renewed) }
      }
      case 'retryDead':
      case 'discardDead':
        return { kind: step, names: this.#names(await store[step]({ eventIds: this.#events.ids })) }
      default:
        return this.#settle(store, step)
    }
  }

  async #claim(store: OutboxStore, kind: Claiming): Promise<Act> {
    const token = `${this.name}:${++this.#calls}`
    // The first sessions try what was lost together, the others one by one.
    const together = kind === 'claim keys' || this.name < 'C'
    const suspects = kind === 'claim fresh' ? 0 : together ? 10 : 1
    const common = {
      token,
      leaseMs: LEASE_MS,
      maxBytes: 1_048_576,
      accept: this.#events.accept,
      skipRecentMs: 0,
      suspects,
    }
    const { rows } =
      kind === 'claim keys'
        ? await store.claimOrdered({ ...common, keys: 10, runLength: RUN_LENGTH, limit: 1_000, afterKey: '' })
        : await store.claim({
            ...common,
            limit: 100,
            fromSeq: 0,
            freshOnly: kind === 'claim fresh',
          })
    return { kind, token, suspects, got: rows.map(this.#got) }
  }

  /** As a worker does: the first event failed, and those behind it are given back unhandled. */
  async #settle(store: OutboxStore, step: Settling): Promise<Act> {
    const isDone = step === 'done' || step === 'done and gone'
    const outcomes = this.#held.map((held, index): Outcome => {
      const outcome = step === 'done and gone' ? 'gone' : isDone || index === 0 ? step : 'release'
      const handledBy = [...new Set([...held.handledBy, `handler of ${this.name}`])]
      return { ...held, outcome, handledBy, error: `failed in ${this.name}` }
    })
    const settlements = outcomes.map((outcome) => settlementOf(outcome, this.#claimOf(outcome)))
    const settled = await store.settleIfLeased(settlements, step !== 'done and gone')
    return { kind: 'settle', outcomes, names: this.#names(settled) }
  }

  readonly #claimOf = ({ name, token }: Held) => ({ eventId: this.#events.named(name).eventId, token })

  readonly #got = (row: ClaimedRow): Got => ({
    name: this.#events.nameOf(row.eventId),
    token: row.token,
    attempts: row.attempts,
    isSuspect: row.suspect,
    handledBy: row.handledBy,
  })

  #names(ids: Iterable<string>): string[] {
    return [...ids].map((id) => this.#events.nameOf(id))
  }
}

function isOfHeld(step: Step): boolean {
  return !step.startsWith('claim') && !step.endsWith('Dead')
}

function settlementOf(
  { outcome, error, handledBy }: Outcome,
  claim: { eventId: string; token: string },
): Settlement {
  if (outcome === 'done' || outcome === 'gone') return { ...claim, outcome: 'done' }
  if (outcome === 'release') return { ...claim, outcome, delayMs: 0 }
  const failure = { handler: 'handler', instance: 'instance', message: error }
  const failed = { ...claim, error, handledBy, delayMs: 0, attempts: 1, failures: [failure] }
  if (outcome === 'retry') return { ...failed, outcome }
  return { ...failed, outcome: 'dead', halts: outcome === 'halt' }
}
