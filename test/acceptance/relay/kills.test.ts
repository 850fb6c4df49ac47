import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import pg from 'pg'
import { createClient } from 'redis'
import { afterAll, beforeAll, describe, expect, inject, it, onTestFinished } from 'vitest'
import { type RedisServer, startRedis } from '../../../scripts/redis-server.mjs'
import { createOutbox, type Outbox, silentLogger } from '../../../src/index.js'
import { postgresStore } from '../../../src/stores/postgres/index.js'
import { freshDatabase } from '../../support/database.js'
import { randomOf } from '../../support/random.js'
import { until } from '../../support/until.js'

/** `KILLS=100` shows what the docs say; the suite has less time. */
const KILLS = Number(process.env.KILLS ?? 30)
const EVENTS_PER_KILL = 40
/** So far the work may be behind when the next one is killed. */
const BACKLOG = 120
const SEED = 20_261_116
const file = (name: string) => fileURLToPath(new URL(`../children/${name}.js`, import.meta.url))

/** One of the two sides: so many processes, each of which is replaced when it is killed. */
class Side {
  killed = 0
  crash: string | null = null
  onMessage: (child: ChildProcess, message: unknown) => void = () => {}
  readonly #program: string
  readonly #args: object
  readonly #children = new Map<ChildProcess, { isReady: boolean }>()
  #isDone = false

  constructor(program: string, args: object, count: number) {
    this.#program = program
    this.#args = args
    for (let n = 0; n < count; n++) this.#spawn()
    onTestFinished(() => this.stop())
  }

  /** Of those that have begun to work. */
  ready(): ChildProcess[] {
    return [...this.#children].filter(([, { isReady }]) => isReady).map(([child]) => child)
  }

  kill(child: ChildProcess): void {
    this.killed++
    const state = this.#children.get(child)
    if (state) state.isReady = false
    child.kill('SIGKILL')
  }

  async stop(): Promise<void> {
    this.#isDone = true
    const exits = [...this.#children.keys()].map((child) => once(child, 'exit'))
    for (const child of this.#children.keys()) child.kill('SIGKILL')
    await Promise.all(exits)
  }

  #spawn(): void {
    if (this.#isDone) return
    const child = fork(file(this.#program), [JSON.stringify(this.#args)], {
      execArgv: [],
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    })
    const state = { isReady: false }
    this.#children.set(child, state)
    let stderr = ''
    child.stderr?.on('data', (chunk) => {
      stderr += chunk
    })
    child.on('message', (message) => {
      if (message === 'ready') state.isReady = true
      else this.onMessage(child, message)
    })
    child.on('exit', (_code, signal) => {
      this.#children.delete(child)
      if (signal !== 'SIGKILL') this.crash = stderr || 'it ended without a word'
      this.#spawn()
    })
  }
}

interface Place {
  readonly url: string
  readonly pool: pg.Pool
  readonly outbox: Outbox<pg.PoolClient>
}

async function newPlace(): Promise<Place> {
  const database = await freshDatabase(inject('postgresUrl'))
  const pool = new pg.Pool({ connectionString: database.url, max: 3 })
  pool.on('error', () => {})
  const outbox = createOutbox({ store: postgresStore(pool, { doorbell: false }), logger: silentLogger })
  await outbox.migrate()
  onTestFinished(async () => {
    await pool.end()
    await database.drop()
  })
  return { url: database.url, pool, outbox }
}

describe('outbox → relay → Redis → exactlyOnce in another database', () => {
  let server: RedisServer
  beforeAll(async () => {
    server = await startRedis()
  })
  afterAll(() => server?.stop())

  async function openWorld(stream: string, marked: boolean) {
    const [source, target] = [await newPlace(), await newPlace()]
    await target.pool.query('create table effect (event_id text not null, number int not null)')
    const common = { redisUrl: server.url, stream }
    const relays = new Side('relay-worker', { ...common, url: source.url }, 2)
    const consumers = new Side('consumer-worker', { ...common, url: target.url, marked }, 2)
    const count = async (sql: string) => Number((await target.pool.query(sql)).rows[0].n)
    return { source, target, relays, consumers, count }
  }

  it(`${KILLS} kills on either side: every effect is there once`, { timeout: 300_000 }, async () => {
    const { source, target, relays, consumers, count } = await openWorld('kills', true)
    const random = randomOf(SEED)
    let published = 0
    const effects = () => count('select count(*) as n from effect')
    for (let kill = 0; kill < KILLS; kill++) {
      const side = random.pick([relays, consumers])
      await until(async () => side.ready().length > 0 && (await effects()) >= published - BACKLOG, {
        timeoutMs: 60_000,
        what: `a process to kill for the ${kill + 1}th time`,
      })
      const numbers = Array.from({ length: EVENTS_PER_KILL }, () => published++)
      await source.outbox.transaction((tx) =>
        tx.publishAll(numbers.map((number) => ({ type: 'thing.happened', payload: { number } }))),
      )
      const victim = random.pick(side.ready())
      // Somewhere in the middle of this work.
      await pause(random.below(20))
      side.kill(victim)
    }
    await until(async () => (await effects()) >= published, {
      timeoutMs: 60_000,
      what: `${published} effects`,
    })
    await until(async () => (await source.outbox.stats()).pending === 0, { what: 'all rows are settled' })
    expect(relays.crash ?? consumers.crash).toBe(null)
    expect(relays.killed + consumers.killed).toBe(KILLS)

    const redis = createClient({ url: server.url })
    await redis.connect()
    const sent = await redis.xLen('kills')
    await redis.close()
    const lines = [
      `${published} events; killed: ${relays.killed} relays, ${consumers.killed} consumers`,
      `messages on the stream: ${sent}, of which ${sent - published} duplicates`,
      `effects: ${await effects()}, of ${await count('select count(distinct event_id) as n from effect')} events`,
    ]
    console.log(lines.map((line) => `[kills] ${line}`).join('\n'))
    expect(await effects()).toBe(published)
    expect(await count('select count(distinct number) as n from effect')).toBe(published)
    expect(await count(`select count(*) as n from outbox_event where event_type = 'effect.done'`)).toBe(
      published,
    )
    expect(await source.outbox.stats()).toMatchObject({ pending: 0, dead: 0 })
    expect((await target.outbox.stats()).dead).toBe(0)
  })

  it('without a mark a kill between the commit and the acknowledgement doubles the effect', {
    timeout: 60_000,
  }, async () => {
    const { source, consumers, count } = await openWorld('control', false)
    consumers.onMessage = (child) => consumers.kill(child)
    await source.outbox.transaction((tx) => tx.publish({ type: 'thing.happened', payload: { number: 0 } }))
    await until(async () => (await count('select count(*) as n from effect')) >= 2, {
      timeoutMs: 50_000,
      what: 'the effect is there twice',
    })
  })
})
