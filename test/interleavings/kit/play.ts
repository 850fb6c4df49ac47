import type { EventRecord } from '../../../src/store.js'
import { type Call, outcomesOf, withOverlaps } from './history.js'
import { type ModelRow, type State, viewOf, viewOfRecords } from './model.js'
import type { Turn } from './orders.js'
import { Events, Session, type Step } from './session.js'
import type { Seat, World } from './world.js'

const PATIENCE_MS = 15_000
const MOST_SWEEPS = 12

export interface Scenario {
  readonly name: string
  readonly isOrdered?: boolean
  /** One after the other, before the sessions begin. */
  readonly before?: readonly (readonly [session: string, step: Step])[]
  readonly scripts: Readonly<Record<string, readonly Step[]>>
}

/** What is under way: a step that may wait for another session's transaction. */
interface Pending {
  readonly session: Session
  readonly done: Promise<void>
  isOver: boolean
}

/** Runs one order of steps, and compares what the sessions are told and what the table holds with the model. */
export class Play {
  readonly #world: World
  readonly #seats: ReadonlyMap<string, Seat>
  readonly #isOrdered: boolean
  readonly #events: Events
  readonly #sessions = new Map<string, Session>()
  readonly #pending = new Map<string, Pending>()
  /** Steps of a session that waits: they come when it goes on. */
  readonly #postponed = new Map<string, Step[]>()
  /** When the calls that are open were begun. */
  readonly #begun = new Map<string, number>()
  readonly #story: string[] = []
  /** Calls since the rows were looked at last. */
  #calls: Call[] = []
  #states: readonly State[] = [new Map()]
  #seen: readonly EventRecord[] = []
  #tick = 0
  /** Some step had to wait for a lock. */
  hasWaited = false

  constructor(world: World, seats: ReadonlyMap<string, Seat>, eventType: string, isOrdered: boolean) {
    this.#world = world
    this.#seats = seats
    this.#isOrdered = isOrdered
    this.#events = new Events(eventType, isOrdered)
  }

  async run(before: NonNullable<Scenario['before']>, order: readonly Turn<Step>[]): Promise<void> {
    try {
      for (const [session, step] of before) await this.#step(session, step)
      this.#story.push('|')
      for (const { session, step } of order) await this.#step(session, step)
      await this.#finish()
      await this.#sweep()
    } catch (error) {
      await inTime(this.#abandon())
      const reason = error instanceof Error ? error.message : String(error)
      throw new Error(`${this.#world.name}: ${this.#story.join(', ')}: ${reason}`, { cause: error })
    }
  }

  async #abandon(): Promise<void> {
    await Promise.all([...this.#sessions.values()].map((session) => session.abandon()))
  }

  async #step(name: string, step: Step): Promise<void> {
    const [verb, object] = step.split(' ')
    if (object && verb === 'share') return this.#session(name).share(this.#session(object))
    if (object && verb === 'guess') return this.#session(name).guess(object)
    if (this.#pending.has(name)) {
      this.#postponed.set(name, [...(this.#postponed.get(name) ?? []), step])
      return
    }
    this.#start(name, step)
    await this.#goOn()
    if (this.#isQuiet() && this.#calls.length > 0) await this.#compare()
  }

  #session(name: string): Session {
    let session = this.#sessions.get(name)
    if (!session) {
      session = new Session(name, this.#world, this.#seats.get(name) as Seat, this.#events)
      this.#sessions.set(name, session)
    }
    return session
  }

  #start(name: string, step: Step): void {
    const session = this.#session(name)
    this.#story.push(`${name} ${step}`)
    const start = step === 'close' ? (this.#begun.get(name) ?? 0) : ++this.#tick
    if (step.startsWith('open ') || step.startsWith('stop ')) this.#begun.set(name, start)
    const mayMiss = this.#world.duplicatesLock && this.#others(name).some((other) => other.hasMetDuplicate)
    const work = async () => {
      const act = await session.run(step)
      if (step === 'close') this.#begun.delete(name)
      if (act) this.#calls.push({ act, start, end: ++this.#tick, mayMiss })
    }
    const pending: Pending = { session, done: work(), isOver: false }
    const over = () => {
      pending.isOver = true
    }
    pending.done.then(over, over)
    this.#pending.set(name, pending)
  }

  /** Until every step that is under way has ended or waits for a lock. Those that ended let their next steps begin. */
  async #goOn(): Promise<void> {
    for (let isMoving = true; isMoving; ) {
      isMoving = false
      for (const [name, pending] of [...this.#pending]) {
        if (!(await this.#endsBeforeItWaits(name, pending))) continue
        this.#pending.delete(name)
        await pending.done
        isMoving = true
        const next = this.#postponed.get(name)?.shift()
        if (next) this.#start(name, next)
      }
    }
  }

  async #endsBeforeItWaits(name: string, pending: Pending): Promise<boolean> {
    const others = this.#others(name)
    const mayWait = () => others.some((other) => other.mayBlock) || this.#pending.size > 1
    const giveUpAt = performance.now() + PATIENCE_MS
    if (!mayWait()) await inTime(pending.done)
    while (!pending.isOver) {
      if ((await pending.session.isWaiting()) && !pending.isOver) {
        this.hasWaited = true
        return false
      }
      if (performance.now() > giveUpAt) throw new Error('neither answered nor waiting for a lock')
      await new Promise((resolve) => setImmediate(resolve))
    }
    return true
  }

  #others(name: string): Session[] {
    return [...this.#sessions.values()].filter((session) => session.name !== name)
  }

  #isQuiet(): boolean {
    return this.#pending.size === 0 && this.#begun.size === 0
  }

  async #finish(): Promise<void> {
    const giveUpAt = performance.now() + PATIENCE_MS
    while (!this.#isQuiet()) {
      await this.#goOn()
      if (performance.now() > giveUpAt) throw new Error(`${[...this.#pending.keys()]} waits for ever`)
    }
    await this.#compare()
  }

  /** What was called since the last time must have one explanation at least, and the rows must look like it. */
  async #compare(): Promise<void> {
    const calls = withOverlaps(this.#calls)
    this.#calls = []
    const { type } = this.#events
    const records = await this.#world.observer.list({ eventType: type, limit: 100 })
    const outcomes = this.#states.flatMap((state) => outcomesOf(state, calls))
    if (outcomes.length === 0) throw new Error(`these answers cannot be right: ${shown(calls)}`)
    const actual = viewOfRecords(records, (id) => this.#events.nameOf(id), this.#world.now())
    const matching = outcomes.filter((state) => viewOf(state) === actual)
    if (matching.length === 0)
      throw new Error(`expected rows\n${outcomes.map(viewOf).join('\nor\n')}\nbut found\n${actual}`)
    this.#ensureNothingElse(calls, matching, records)
    this.#states = distinct(matching.map((state) => this.#numbered(state, records)))
    this.#seen = records
  }

  /** With the numbers that the database drew. */
  #numbered(state: State, records: readonly EventRecord[]): State {
    const seqs = new Map(records.map(({ eventId, seq }) => [this.#events.nameOf(eventId), seq]))
    return new Map([...state].map(([name, row]) => [name, { ...row, seq: seqs.get(name) ?? row.seq }]))
  }

  /** A call that counts for nothing leaves every column as it was. */
  #ensureNothingElse(calls: readonly Call[], now: readonly State[], records: readonly EventRecord[]): void {
    const isRenewed = calls.some(({ act }) => act.kind === 'renew' && act.names.length > 0)
    const [before] = this.#states
    if (isRenewed || !before || now.some((state) => viewOf(state) !== viewOf(before))) return
    const [was, is] = [this.#seen, records].map((some) => JSON.stringify(some))
    if (was !== is) throw new Error(`nothing was to change, but\n${was}\nbecame\n${is}`)
  }

  /** Whatever happened, what was committed can be handled in the end, and is lost nowhere. */
  async #sweep(): Promise<void> {
    this.#story.push('|')
    if (this.#rows().some((row) => row.lockedBy !== null)) await this.#step('Z', 'time passes')
    for (let round = 0; round < MOST_SWEEPS; round++) {
      if (!this.#rows().some(({ status }) => status === 'NEW' || status === 'RETRY')) return
      await this.#step('Z', this.#isOrdered ? 'claim keys' : 'claim')
      await this.#step('Z', 'done')
      if (this.#rows().some((row) => row.halts)) await this.#step('Z', 'retryDead')
    }
    throw new Error('something is never handed out')
  }

  #rows(): ModelRow[] {
    return [...(this.#states[0]?.values() ?? [])]
  }
}

function distinct(states: readonly State[]): State[] {
  return [...new Map(states.map((state) => [JSON.stringify([...state]), state])).values()]
}

function shown(calls: readonly Call[]): string {
  return calls.map(({ act, start, end }) => `[${start}–${end}] ${JSON.stringify(act)}`).join('\n')
}

async function inTime(done: Promise<void>): Promise<void> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer within ${PATIENCE_MS} ms`)), PATIENCE_MS)
  })
  await Promise.race([done.catch(() => {}), late]).finally(() => clearTimeout(timer))
}
