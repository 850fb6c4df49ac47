import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, inject, it, onTestFinished } from 'vitest'
import { type FreshDatabase, freshDatabase } from '../../support/database.js'
import { effectsIn } from '../../support/effects.js'
import { until } from '../../support/until.js'
import { openWorld, type World } from '../../support/world.js'

const WORKER = fileURLToPath(new URL('../children/inbox-worker.js', import.meta.url))
const AT_ONCE = 4

type Step = 'in the transaction' | 'committing' | 'committed'

/** Every event costs one process its life, at the step it names; its other deliveries are left in peace. */
class Killer {
  readonly killed = new Map<string, Step>()
  /** How often a process has come to such a step and was let go on. */
  spared = 0
  /** What a process said before it ended by itself. None should. */
  crash: string | null = null
  readonly #world: World
  readonly #marked: boolean
  readonly #children = new Set<ChildProcess>()
  #done = false

  constructor(world: World, marked: boolean) {
    this.#world = world
    this.#marked = marked
    onTestFinished(() => this.stop())
  }

  start(): void {
    for (let i = 0; i < AT_ONCE; i++) this.#spawn()
  }

  async stop(): Promise<void> {
    this.#done = true
    const exits = [...this.#children].map((child) => once(child, 'exit'))
    for (const child of this.#children) child.kill('SIGKILL')
    await Promise.all(exits)
  }

  #spawn(): void {
    if (this.#done) return
    const { url, table } = this.#world
    const child = fork(WORKER, [JSON.stringify({ url, table, marked: this.#marked })], {
      execArgv: [],
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    })
    this.#children.add(child)
    let stderr = ''
    child.stderr?.on('data', (chunk) => {
      stderr += chunk
    })
    child.on('message', ({ eventId, step }: { eventId: string; step: Step }) => {
      if (this.killed.has(eventId)) {
        this.spared++
        return void child.send('go on', () => {})
      }
      this.killed.set(eventId, step)
      child.kill('SIGKILL')
    })
    child.on('exit', (_code, signal) => {
      this.#children.delete(child)
      if (signal !== 'SIGKILL') this.crash = stderr
      this.#spawn()
    })
  }
}

describe('processes that are killed in the middle of a handler', () => {
  let database: FreshDatabase
  beforeAll(async () => {
    database = await freshDatabase(inject('postgresUrl'))
  })
  afterAll(() => database?.drop())

  /** One kill for each of the steps. Resolves when all events are done. */
  async function massacre(marked: boolean, steps: readonly Step[], timeoutMs: number) {
    const world = await openWorld(database.url)
    const { table } = await effectsIn(world)
    const events = steps.map((step, i) => ({ type: 'thing.happened', eventId: `e-${i}`, payload: { step } }))
    await world.outbox().transaction((tx) => tx.publishAll(events))
    const killer = new Killer(world, marked)
    killer.start()
    const pending = async () => {
      if (killer.crash !== null) throw new Error(`a worker ended by itself: ${killer.crash}`)
      const { rows } = await world.pool.query(
        `select count(*)::int as n from ${world.table} where event_type = 'thing.happened' and status <> 1`,
      )
      return rows[0]?.n as number
    }
    await until(async () => (await pending()) === 0, { timeoutMs, what: `${steps.length} events to be done` })
    await killer.stop()
    const counted = async (sql: string) => {
      const { rows } = await world.pool.query<{ id: string; n: number }>(sql)
      return new Map(rows.map(({ id, n }) => [id, n]))
    }
    return {
      killed: killer.killed,
      spared: killer.spared,
      effects: await counted(`select event_id as id, count(*)::int as n from ${table} group by 1`),
      followups: await counted(
        `select payload::jsonb->>'of' as id, count(*)::int as n from ${world.table}
          where event_type = 'thing.followed' group by 1`,
      ),
      marks: await counted(
        `select event_id as id, count(*)::int as n from ${world.table}_inbox where handler = 'count' group by 1`,
      ),
    }
  }

  const each = (count: number, times: number) =>
    new Map(Array.from({ length: count }, (_, i) => [`e-${i}`, times]))
  const sorted = (map: Map<string, number>) => new Map([...map].sort(([a], [b]) => number(a) - number(b)))
  const number = (id: string) => Number(id.slice(2))

  it('200 times, between the effect and its outcome: each effect is there once', {
    timeout: 300_000,
  }, async () => {
    const steps = Array.from({ length: 200 }, (_, i): Step => {
      if (i % 5 === 3) return 'in the transaction'
      return i % 5 === 4 ? 'committing' : 'committed'
    })
    const { killed, spared, effects, followups, marks } = await massacre(true, steps, 280_000)
    expect(killed.size).toBe(200)
    expect(sorted(effects)).toEqual(each(200, 1))
    expect(sorted(followups)).toEqual(each(200, 1))
    expect(sorted(marks)).toEqual(each(200, 1))
    // Those killed behind their commit came again; those killed in front of it ran again.
    expect(spared).toBeGreaterThanOrEqual(160)
  })

  it('10 times without a mark: each effect is there twice or more', { timeout: 60_000 }, async () => {
    const steps = Array.from({ length: 10 }, (): Step => 'committed')
    const { killed, effects, followups } = await massacre(false, steps, 50_000)
    expect(killed.size).toBe(10)
    // More than twice when a lease of 400 ms runs out on a busy machine.
    for (const counts of [effects, followups]) {
      expect([...counts.values()].filter((times) => times >= 2)).toHaveLength(10)
    }
  })
})
