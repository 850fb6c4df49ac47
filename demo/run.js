// Runs the shop from the first order until everything is handled, and kills one of the workers halfway.
import { setTimeout as sleep } from 'node:timers/promises'
import { Process } from './processes.js'
import { LEASE_MS, ORDERS, openShop } from './shop.js'
import { judge } from './verdict.js'

const DRAIN_LIMIT_MS = 60_000

/**
 * @param {{ url: string, major: number, folder: string, seconds: number, events: number }} config
 * @param {import('./screen.js').Screen} screen
 */
export async function runShop(config, screen) {
  // This process only looks on: its outbox is never started.
  const { pool, outbox } = openShop(config.url, { connections: 4 })
  try {
    await outbox.migrate()
    await pool.query(ORDERS)
    const shop = new Process('the shop', 'producer.js', config)
    const workers = ['worker 1', 'worker 2'].map((name) => new Process(name, 'worker.js', config))
    const all = [shop, ...workers]
    await Promise.all(all.map((child) => child.says('ready')))

    screen.say(
      `PostgreSQL ${config.major} with fsync on. The shop (pid ${shop.pid}) takes orders and charges cards;`,
    )
    screen.say(`two workers (pids ${workers.map((worker) => worker.pid).join(' and ')}) send the receipts.`)
    const watch = new Watch(pool, outbox, screen, all)
    const startedAt = performance.now()
    let soldOutAt = Number.POSITIVE_INFINITY
    void shop.says('soldOut').then(
      () => (soldOutAt = performance.now()),
      () => {},
    )
    screen.start()
    shop.tell('go')

    for (let pending = 1; pending > 0; ) {
      await Promise.race([sleep(100), ...all.map((child) => child.failed)])
      pending = Math.max(await watch.look(), performance.now() < soldOutAt ? 1 : 0)
      const done = Math.max(
        (performance.now() - startedAt) / 1_000 / config.seconds,
        shop.counts.committed / config.events,
      )
      if (done > 0.5) await watch.killBusiest(workers, done > 0.8)
      if (performance.now() - soldOutAt > DRAIN_LIMIT_MS) break
    }
    const seconds = (performance.now() - startedAt) / 1_000

    await Promise.all(all.map((child) => child.end()))
    const verdict = await judge(pool, config.folder, workers.find((worker) => worker.killed)?.pid ?? 0)
    return {
      verdict,
      orphans: watch.orphans,
      rolledBack: shop.counts.rolledBack,
      eventsPerSecond: Math.round(verdict.handled / seconds),
    }
  } finally {
    await pool.end()
  }
}

/** Follows what happens, from outside: by the counters of the processes and by looking into the outbox. */
class Watch {
  #pool
  #outbox
  #screen
  #all
  /** @type {string[] | undefined} what the killed worker held */
  #orphans
  #killedAt = 0
  /** Number of events that the killed worker had leased. */
  orphans = 0

  /**
   * @param {import('pg').Pool} pool
   * @param {ReturnType<typeof openShop>['outbox']} outbox
   * @param {import('./screen.js').Screen} screen
   * @param {Process[]} all
   */
  constructor(pool, outbox, screen, all) {
    this.#pool = pool
    this.#outbox = outbox
    this.#screen = screen
    this.#all = all
  }

  /** Shows how things stand. Returns how many events wait. */
  async look() {
    const { pending, oldestLagMs } = await this.#outbox.stats()
    const sum = (/** @type {'committed' | 'rolledBack' | 'handled'} */ what) =>
      this.#all.reduce((total, child) => total + child.counts[what], 0)
    const counts = { committed: sum('committed'), rolledBack: sum('rolledBack'), handled: sum('handled') }
    this.#screen.progress({ ...counts, lagMs: oldestLagMs })
    if (this.#orphans?.length) await this.#lookAfterOrphans(this.#orphans)
    return pending
  }

  /**
   * SIGKILL to the worker that holds most events at this moment, once; not while all are idle, unless it must be.
   * @param {Process[]} workers
   * @param {boolean} must
   */
  async killBusiest(workers, must) {
    if (this.#orphans) return
    const held = await Promise.all(
      workers.map(async (worker) => ({ worker, count: (await this.#heldBy(worker)).length })),
    )
    const { worker: busiest, count } = held.reduce((most, candidate) =>
      candidate.count > most.count ? candidate : most,
    )
    if (count < 3 && !must) return
    await busiest.kill()
    this.#killedAt = performance.now()
    await sleep(100) // what it had sent to the database before it died still counts
    this.#orphans = await this.#heldBy(busiest)
    this.orphans = this.#orphans.length
    this.#screen.say(
      `        ${busiest.name} (pid ${busiest.pid}) was killed by SIGKILL; it held ${this.orphans} events, leased for ${LEASE_MS} ms`,
    )
  }

  /** @param {Process} worker @returns {Promise<string[]>} */
  async #heldBy(worker) {
    const held = 'select event_id from outbox_event where status = 0 and locked_by like $1'
    const { rows } = await this.#pool.query(held, [`${worker.instance}:%`])
    return rows.map((row) => row.event_id)
  }

  /** @param {string[]} orphans */
  async #lookAfterOrphans(orphans) {
    const waiting = 'select count(*)::int as n from outbox_event where event_id = any($1) and status <> 1'
    const { rows } = await this.#pool.query(waiting, [orphans])
    if (rows[0].n > 0) return
    this.#orphans = []
    const seconds = ((performance.now() - this.#killedAt) / 1_000).toFixed(1)
    this.#screen.say(
      `        the other worker has taken them over and handled them, ${seconds} s after the kill`,
    )
  }
}
