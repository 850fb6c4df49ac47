import { expect, it } from 'vitest'
import { exactlyOnce } from '../../../src/inbox/index.js'
import { type EventEnvelope, type HandlerContext, silentLogger } from '../../../src/index.js'
import { type Effect, type Effects, effectsIn, unmarked } from '../../support/effects.js'
import { gate, until } from '../../support/until.js'
import { OrderPlaced, onEveryPostgres, type World } from '../../support/world.js'

type Order = { orderId: string }
const order = (orderId: string) => OrderPlaced({ orderId }, { eventId: orderId })

onEveryPostgres('a duplicate that comes while the first is under way', (newWorld) => {
  interface Race {
    readonly world: World
    readonly effects: Effects
    /** Lets the first one go on: it commits, or it throws. */
    readonly held: ReturnType<typeof gate>
    /** The delivery of the second owner. */
    readonly second: Promise<boolean>
    readonly runs: string[]
  }

  /** The first owner loses its lease in the middle of its transaction, and a second one takes the event. */
  async function race(
    kind: 'once' | 'plain',
    outcome: 'commits' | 'rolls back',
    waits: boolean,
  ): Promise<Race> {
    const world = await newWorld()
    const effects = await effectsIn(world)
    const held = gate()
    const runs: string[] = []
    const owner = (name: string, after: () => unknown) => {
      const outbox = world.outbox()
      const effect: Effect<Order> = async (event, given) => {
        runs.push(name)
        await effects.add(event, given)
        await after()
      }
      outbox.on(OrderPlaced, kind, kind === 'once' ? exactlyOnce(effect, outbox) : unmarked(effect, outbox))
      return outbox
    }
    const zombie = owner('first', async () => {
      await held.opened
      if (outcome === 'rolls back') throw new Error('no')
    })
    await zombie.start()
    await zombie.enqueue(order('o-1'))
    await until(() => runs.length === 1)
    const heir = owner('second', () => {})
    const takeOver = async (): Promise<boolean> => {
      // Again, should the first owner have renewed its lease just now.
      for (;;) {
        await world.pool.query(`update ${world.table} set locked_until = now() - interval '1 s'`)
        if (await heir.consumeOne()) return true
      }
    }
    const second = takeOver()
    if (waits) await until(async () => (await waiting(world)) === 1, { what: 'the second one to wait' })
    return { world, effects, held, second, runs }
  }

  async function waiting(world: World): Promise<number> {
    const { rowCount } = await world.pool.query(
      `select from pg_locks join pg_stat_activity using (pid)
        where not granted and query like '%${world.table}_inbox%' and pid <> pg_backend_pid()`,
    )
    return rowCount ?? 0
  }

  it('waits for it, and does nothing when it commits', async () => {
    const { world, effects, held, second, runs } = await race('once', 'commits', true)
    expect(runs).toEqual(['first'])
    held.open()
    expect(await second).toBe(true)
    expect(runs).toEqual(['first'])
    expect(await effects.counts()).toEqual({ once: 1 })
    expect(await world.rows()).toMatchObject([{ status: 'DONE' }])
  })

  it('waits for it, and runs when it rolls back', async () => {
    const { effects, held, second, runs } = await race('once', 'rolls back', true)
    expect(runs).toEqual(['first'])
    held.open()
    await second
    expect(runs).toEqual(['first', 'second'])
    expect(await effects.counts()).toEqual({ once: 1 })
  })

  it('would have a second effect without the mark', async () => {
    const { effects, held, second } = await race('plain', 'commits', false)
    await second
    held.open()
    await until(async () => (await effects.counts()).plain === 2)
  })

  it.each(['read committed', 'repeatable read', 'serializable'])(
    'runs once, whichever of many outboxes gets it (%s)',
    async (isolation) => {
      const world = await newWorld()
      const effects = await effectsIn(world)
      const database = new URL(world.url).pathname.slice(1)
      await world.pool.query(`alter database ${database} set default_transaction_isolation = '${isolation}'`)
      const effect: Effect<Order> = async (event, given) => {
        await effects.add(event, given)
        const { rows } = await given.tx.client.query('show transaction_isolation')
        expect(rows).toEqual([{ transaction_isolation: isolation }])
      }
      const handlers = [world.outbox(), world.outbox(), world.outbox()].map((one) => exactlyOnce(effect, one))
      const calls = Array.from({ length: 20 }, (_, i) => envelope(`o-${i}`)).flatMap((event) =>
        handlers.flatMap((handle) => [1, 2].map(() => untilItSucceeds(() => handle(event, CONTEXT)))),
      )
      await Promise.all(calls)
      await world.pool.query(`alter database ${database} reset default_transaction_isolation`)
      expect(await effects.counts()).toEqual({ once: 20 })
      const { rows } = await world.pool.query(`select distinct event_id from ${effects.table}`)
      expect(rows).toHaveLength(20)
    },
  )
})

/** A serialization failure is a failed attempt like any other. */
async function untilItSucceeds(attempt: () => Promise<void>): Promise<void> {
  for (let left = 20; left > 0; left--) {
    const error = await attempt().then(
      () => null,
      (thrown: { code?: string }) => thrown,
    )
    if (error === null) return
    expect(error.code).toBe('40001')
  }
  throw new Error('it never succeeds')
}

const CONTEXT: HandlerContext = {
  handler: 'once',
  attempt: 1,
  signal: new AbortController().signal,
  log: silentLogger,
  scope: null,
}

function envelope(orderId: string): EventEnvelope<Order> {
  return order(orderId).toEnvelope() as EventEnvelope<Order>
}
