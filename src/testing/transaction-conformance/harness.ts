import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import type { EventEnvelope } from '../../core/envelope.js'
import { silentLogger } from '../../observe/logger.js'
import type { CounterName } from '../../observe/metrics.js'
import { createOutbox, type Outbox } from '../../outbox.js'
import type { EventRecord } from '../../store.js'
import type { HostedTransactions } from '../../transaction.js'
import type { Subject } from '../themes.js'
import type { TransactionConformanceOptions, TransactionNeed, TransactionWorld } from './options.js'

const POLL_MS = 5
const PATIENCE_MS = 10_000
/** So long that no lease runs out and no poller comes by: what is delivered came from memory. */
const NEVER_MS = 3_600_000

/** One outbox and what was seen of it. */
export interface Side<Tx extends object, Options> {
  readonly outbox: Outbox<unknown>
  /** Where its events are. */
  readonly table: string
  readonly transaction: HostedTransactions<Tx, Options>
  /** In the order in which the handler got them. */
  readonly handled: EventEnvelope[]
  readonly counts: Partial<Record<CounterName, number>>
}

/** A world, an outbox in it that is not started, and the shorthand that the tests share. */
export class Harness<Tx extends object, Options> implements Subject<TransactionNeed> {
  readonly world: TransactionWorld<Tx, Options>
  readonly outbox: Outbox<unknown>
  readonly transaction: HostedTransactions<Tx, Options>
  readonly handled: EventEnvelope[]
  readonly counts: Side<Tx, Options>['counts']
  readonly #sides: Side<Tx, Options>[]
  readonly #patienceMs: number

  private constructor(world: TransactionWorld<Tx, Options>, side: Side<Tx, Options>, patienceMs: number) {
    this.world = world
    this.outbox = side.outbox
    this.transaction = side.transaction
    this.handled = side.handled
    this.counts = side.counts
    this.#sides = [side]
    this.#patienceMs = patienceMs
  }

  static async create<Tx extends object, Options>(
    options: TransactionConformanceOptions<Tx, Options>,
  ): Promise<Harness<Tx, Options>> {
    const world = await options.createWorld()
    return new Harness(world, await sideIn(world), options.patienceMs ?? PATIENCE_MS)
  }

  has(need: TransactionNeed): boolean {
    if (need === 'nests in savepoint') return this.world.nestsInSavepoint !== false
    if (need === 'two open at once') return this.world.openAtOnce > 1
    if (need === 'refuses the commit' || need === 'goes on') return this.world.afterFailure === need
    return this.world[need] !== undefined
  }

  async dispose(): Promise<void> {
    for (const { outbox } of this.#sides) {
      await outbox.stop()
      await outbox.store.close()
    }
    await this.world.dispose()
  }

  start(): Promise<void> {
    return this.outbox.start()
  }

  /** Another outbox in the same database, with tables of its own. */
  async another(state: 'migrated' | 'not migrated' = 'migrated'): Promise<Side<Tx, Options>> {
    const side = await sideIn(this.world, state === 'migrated')
    this.#sides.push(side)
    return side
  }

  /** For a business row that no other test has. */
  id(): string {
    return `row-${randomBytes(8).toString('hex')}`
  }

  publish(name: string): Promise<string> {
    return this.outbox.publish(named(name))
  }

  async isCommitted(id: string): Promise<boolean> {
    return (await this.world.committed([id])).length > 0
  }

  /** Of all events in the table, in the order in which they were written. */
  async names(): Promise<string[]> {
    return (await this.records()).map((record) => JSON.parse(record.payloadText ?? 'null').name)
  }

  records(): Promise<readonly EventRecord[]> {
    return this.outbox.store.list({ limit: 1_000 })
  }

  handledNames(): string[] {
    return this.handled.map((event) => (event.payload as { name: string }).name)
  }

  /** These and no others came, from memory. Whatever was wrongly announced before would have come first. */
  async onlyHot(...names: string[]): Promise<void> {
    const last = `sentinel-${this.id()}`
    await this.transaction(() => this.publish(last))
    await this.until(`${last} is delivered`, () => this.handledNames().includes(last))
    const sorted = (list: readonly string[]) => list.filter((name) => name !== last).sort()
    assert.deepEqual(sorted(this.handledNames()), [...names].sort(), 'what was delivered')
    assert.deepEqual(sorted(await this.names()), [...names].sort(), 'what is in the table')
    assert.equal(this.counts.cold_enqueued ?? 0, 0, 'nothing was found by a poller')
  }

  async until(what: string, condition: () => boolean | Promise<boolean>): Promise<void> {
    const giveUpAt = performance.now() + this.#patienceMs
    while (!(await condition())) {
      assert.ok(performance.now() < giveUpAt, `not within ${this.#patienceMs} ms: ${what}`)
      await new Promise((resolve) => setTimeout(resolve, POLL_MS))
    }
  }
}

export function named(name: string) {
  return { type: 'thing.happened', payload: { name } }
}

export const hasCode = (code: string) => (error: unknown) => {
  assert.ok(error instanceof Error && 'code' in error, String(error))
  assert.equal(error.code, code, String(error))
  return true
}

async function sideIn<Tx extends object, Options>(
  world: TransactionWorld<Tx, Options>,
  migrate = true,
): Promise<Side<Tx, Options>> {
  const counts: Side<Tx, Options>['counts'] = {}
  const handled: EventEnvelope[] = []
  const table = `conformance_${randomBytes(6).toString('hex')}`
  const outbox = createOutbox({
    store: world.createStore(table),
    logger: silentLogger,
    poller: { pollIntervalMs: NEVER_MS, leaseMs: NEVER_MS },
    metrics: {
      count: (name, by) => {
        counts[name] = (counts[name] ?? 0) + by
      },
      gauge: () => {},
      duration: () => {},
    },
  })
  outbox.on('*', 'note', (event) => void handled.push(event))
  if (migrate) await outbox.migrate()
  return { outbox, table, transaction: world.transactionsOf(outbox), handled, counts }
}
