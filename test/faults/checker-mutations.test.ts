import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { check, type FinalState, type Line, storyText } from '../../faults/lib/checker.js'
import { JournalWriter } from './journal-writer.js'

const MISHAPS = [
  'failed',
  'crash in the run',
  'crash after the run',
  'settle failed',
  'frozen',
  'given back',
] as const

interface Plan {
  readonly fate: 'committed' | 'unknown' | 'rolled-back'
  readonly key: string | null
  readonly type: 'plain' | 'pair' | 'once'
  /** What goes wrong, one delivery each, before one that works. */
  readonly mishaps: readonly (typeof MISHAPS)[number][]
  readonly at: number
}

const planOf = fc.record<Plan>({
  fate: fc.constantFrom('committed', 'committed', 'unknown', 'rolled-back'),
  key: fc.constantFrom(null, 'a', 'b'),
  type: fc.constantFrom('plain', 'pair', 'once'),
  mishaps: fc.array(fc.constantFrom(...MISHAPS), { maxLength: 3 }),
  at: fc.integer({ min: 1_000, max: 9_000 }),
})

/** Every history has something that each mutation can be done to. */
const ALWAYS: readonly Plan[] = [
  { fate: 'rolled-back', key: null, type: 'plain', mishaps: [], at: 1_000 },
  { fate: 'committed', key: 'a', type: 'plain', mishaps: [], at: 1_000 },
  { fate: 'committed', key: 'a', type: 'plain', mishaps: ['failed'], at: 1_000 },
  { fate: 'committed', key: null, type: 'once', mishaps: ['frozen'], at: 1_000 },
]

/** A history in which everything is as it should be, whatever befalls the workers. */
class World extends JournalWriter {
  readonly #versions = new Map<string, number>()
  /** When the last event of a key was through. */
  readonly #through = new Map<string, number>()
  #lives = 0
  #tokens = 0
  #events = 0

  constructor(plans: readonly Plan[]) {
    super()
    for (const plan of plans) this.#tell(plan)
    this.write('worker-9.1', 'stopped').exited('worker-9.1')
  }

  #tell({ fate, key, type, mishaps, at }: Plan): void {
    const eventId = `e${++this.#events}`
    this.at(key === null ? at : Math.max(at, this.#through.get(key) ?? 0))
    if (fate === 'rolled-back') {
      this.publish(eventId, fate, { key })
      return
    }
    const version = key === null ? null : (this.#versions.get(key) ?? 0) + 1
    this.publish(eventId, fate, { key, version }).exists(eventId, { key, version, type })
    if (type === 'once') this.effect('count', eventId)
    this.#deliver(eventId, type, mishaps)
    if (key === null || version === null) return
    this.#versions.set(key, version)
    this.#through.set(key, this.time)
  }

  #deliver(eventId: string, type: string, mishaps: Plan['mishaps']): void {
    const done = new Set<string>()
    let attempts = 0
    const handlers = this.handlers[type] ?? []
    for (const mishap of [...mishaps, null]) {
      const proc = `worker-${++this.#lives + 10}.1`
      const token = `t${++this.#tokens}`
      const left = handlers.filter((one) => !done.has(one))
      this.claim(proc, token, eventId, attempts)
      if (mishap === null) {
        for (const handler of left) this.run(proc, eventId, handler)
        this.settle(proc, token, eventId)
      } else attempts += this.#goWrong(mishap, { proc, token, eventId, handlers: left, done })
    }
  }

  /** Answers how many attempts it costs. */
  #goWrong(mishap: (typeof MISHAPS)[number], one: Delivery): number {
    const { proc, token, eventId, handlers, done } = one
    const [first = 'note', ...others] = handlers
    if (mishap === 'given back') {
      this.settle(proc, token, eventId, 'release')
      return 0
    }
    if (mishap === 'failed') {
      this.run(proc, eventId, first, false)
      for (const handler of others) {
        this.run(proc, eventId, handler)
        done.add(handler)
      }
      this.settle(proc, token, eventId, 'retry')
      return 1
    }
    for (const handler of others) this.run(proc, eventId, handler)
    if (mishap === 'crash in the run') this.start(proc, eventId, first)
    else this.run(proc, eventId, first)
    if (mishap.startsWith('crash')) this.killed(proc)
    if (mishap === 'settle failed')
      this.write(proc, 'settle-failed', { n: this.settling(proc, token, eventId) })
    if (mishap === 'frozen') {
      const frozenAt = this.time
      this.campaign('froze', { child: proc })
      this.at(frozenAt + 20_000).campaign('thawed', { child: proc })
      this.settle(proc, token, eventId, 'done', false).at(frozenAt)
    }
    this.at(this.time + 2_000)
    return 0
  }
}

interface Delivery {
  readonly proc: string
  readonly token: string
  readonly eventId: string
  readonly handlers: readonly string[]
  readonly done: Set<string>
}

interface Case {
  lines: Line[]
  state: FinalState
}

type Pick = <T>(from: readonly T[]) => T
type Mutate = (history: Case, pick: Pick) => void

function lines(history: Case, what: string, filter: (line: Line) => boolean = () => true): Line[] {
  return history.lines.filter((line) => line.what === what && filter(line))
}

function change(history: Case, line: Line, fields: Record<string, unknown>): void {
  history.lines = history.lines.map((one) => (one === line ? { ...one, ...fields } : one))
}

function lastLine(history: Case): number {
  return Math.max(...history.lines.map(({ at }) => at))
}

const idsOf = (history: Case) => history.state.business.map(({ eventId }) => eventId)

/** A delivery by a life of its own at that time. */
function deliver(history: Case, eventId: string, handler: string, at: number): void {
  const writer = new JournalWriter().at(at).claim('worker-0.1', 'mutant', eventId)
  writer.end('worker-0.1', writer.start('worker-0.1', eventId, handler), true)
  history.lines.push(...writer.lines)
}

const MUTATIONS: Record<string, [string, Mutate]> = {
  'the ends of all successful runs of an event are dropped': [
    'I1',
    (history, pick) => {
      const plain = history.state.rows
        .filter(({ eventType }) => eventType === 'plain')
        .map((row) => row.eventId)
      const target = pick(plain)
      const runs = lines(history, 'start', ({ eventId }) => eventId === target)
      const gone = new Set(runs.map(({ proc, run }) => `${proc} ${run}`))
      history.lines = history.lines.filter(
        ({ what, proc, run }) => what !== 'end' || !gone.has(`${proc} ${run}`),
      )
    },
  ],
  'a row is left': [
    'I1',
    (history, pick) => {
      const eventId = pick(idsOf(history))
      const status = pick(['NEW', 'RETRY'] as const)
      const rows = history.state.rows.map((row) => (row.eventId === eventId ? { ...row, status } : row))
      history.state = { ...history.state, rows }
    },
  ],
  'a row is lost': [
    'I1',
    (history, pick) => {
      const eventId = pick(idsOf(history))
      history.state = { ...history.state, rows: history.state.rows.filter((row) => row.eventId !== eventId) }
    },
  ],
  'an event of a rolled-back transaction is run': [
    'I2',
    (history, pick) => {
      const undone = lines(history, 'published', ({ eventId }) => !idsOf(history).includes(eventId as string))
      deliver(history, pick(undone).eventId as string, 'note', 5_000)
    },
  ],
  'a transaction was not committed after all': [
    'I2',
    (history, pick) => {
      const eventId = pick(idsOf(history))
      const { state } = history
      history.state = { ...state, business: state.business.filter((row) => row.eventId !== eventId) }
    },
  ],
  'two first starts of a key change places': [
    'I3',
    (history) => {
      const [first, second] = history.state.business.filter(({ key }) => key === 'a')
      const [one] = lines(history, 'start', ({ eventId }) => eventId === first?.eventId)
      const [two] = lines(history, 'start', ({ eventId }) => eventId === second?.eventId)
      if (!one || !two) throw new Error('no key')
      change(history, one, { eventId: two.eventId })
      change(history, two, { eventId: one.eventId })
    },
  ],
  'a second life begins during a run': [
    'I4',
    (history, pick) => {
      const ended = new Set(lines(history, 'end').map(({ proc, run }) => `${proc} ${run}`))
      const runs = lines(history, 'start', ({ proc, run }) => ended.has(`${proc} ${run}`))
      const { eventId, handler, at } = pick(runs)
      // A run takes one millisecond, and so does a claim in front of it.
      deliver(history, eventId as string, handler as string, at - 1.5)
    },
  ],
  'a handler is called again for nothing': [
    'I5',
    (history, pick) => {
      const { eventId } = pick(history.state.rows.filter(({ eventType }) => eventType === 'plain'))
      deliver(history, eventId, 'note', lastLine(history) + 10)
    },
  ],
  'a stale settlement counts': [
    'I6',
    (history, pick) => {
      const sent = new Map(lines(history, 'settling').map((line) => [line.n, line]))
      const line = pick(lines(history, 'settled', ({ events }) => (events as string[]).length === 0))
      const settlements = sent.get(line.n)?.settlements as string[][] | undefined
      change(history, line, { events: [settlements?.[0]?.[0]] })
    },
  ],
  'attempts fall': [
    'I7',
    (history, pick) => {
      const claims = lines(history, 'claimed')
      const idOf = ({ events }: Line) => (events as [string, number][])[0]?.[0]
      const repeated = claims.filter(
        (line, at) => claims.findLastIndex((one) => idOf(one) === idOf(line)) > at,
      )
      const line = pick(repeated)
      change(history, line, { events: [[idOf(line), 99]] })
    },
  ],
  'an event is claimed after it was done': [
    'I8',
    (history, pick) => {
      const writer = new JournalWriter().at(lastLine(history) + 10)
      history.lines.push(...writer.claim('worker-0.1', 'mutant', pick(idsOf(history))).lines)
    },
  ],
  'an effect happens twice': [
    'I9',
    (history, pick) => {
      const { effects } = history.state
      history.state = { ...history.state, effects: [...effects, pick(effects)] }
    },
  ],
  'an effect is missing': [
    'I9',
    (history, pick) => {
      const { effects } = history.state
      const gone = pick(effects)
      history.state = { ...history.state, effects: effects.filter((one) => one !== gone) }
    },
  ],
  'a payload is broken': [
    'I10',
    (history, pick) => change(history, pick(lines(history, 'start')), { payloadOk: false }),
  ],
  'a process does not end after stop()': [
    'I11',
    (history) => {
      history.lines = history.lines.filter(({ what, child }) => what !== 'exited' || child !== 'worker-9.1')
    },
  ],
  'an exit was not meant': [
    'I12',
    (history, pick) => change(history, pick(lines(history, 'exited')), { meant: false }),
  ],
}

const worlds = fc.array(planOf, { maxLength: 12 }).map((plans) => new World([...ALWAYS, ...plans]))

describe('generated histories', () => {
  it('are never accused of anything as long as they are correct', () => {
    fc.assert(
      fc.property(worlds, ({ lines, state }) => {
        expect(check(lines, state).violations.map(storyText)).toEqual([])
      }),
      { numRuns: 300 },
    )
  })

  it.each(Object.entries(MUTATIONS))('are found out when %s', (_, [invariant, mutate]) => {
    fc.assert(
      fc.property(worlds, fc.nat(), ({ lines, state }, nth) => {
        const history = { lines: [...lines], state }
        mutate(history, (from) => {
          if (from.length === 0) throw new Error('the history has nothing to be changed')
          return from[nth % from.length] as never
        })
        const { verdicts, violations } = check(history.lines, history.state)
        expect(verdicts[invariant]).toBe('violated')
        const stories = violations.filter((one) => one.invariant === invariant).map(storyText)
        for (const story of stories) expect(story.split('\n').length).toBeGreaterThan(1)
      }),
      { numRuns: 100 },
    )
  })
})
