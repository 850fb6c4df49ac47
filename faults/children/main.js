// A process of the campaign. It loads everything, waits for its job, and is then a producer or a worker until it is
// told to end, or is killed.
import { now, openJournal } from '../lib/journal.js'
import { sleep } from '../lib/waiting.js'
import { importFrom, openDatabase } from './databases.js'
import { registerHandlers } from './handlers.js'
import { Points } from './points.js'
import { produce } from './producer.js'
import { runOnce } from './script.js'
import { watched } from './watched-store.js'
import { work } from './worker.js'

const packageDir = process.env.FAULTS_PACKAGE
const aftercommit = await importFrom(packageDir, 'index.js')
const { exactlyOnce } = await importFrom(packageDir, 'inbox/index.js')
const roles = { producer: produce, worker: work, script: runOnce }

process.on('disconnect', () => life?.stopped || process.exit(1))
process.on('message', (message) => (message.job ? begin(message.job) : life?.hear(message)))

const EVERY_MS = 50
const LATE_MS = 200
let life

async function begin(job) {
  const journal = openJournal(job.dir, job.proc)
  const problem = (kind) => (error) =>
    journal.write('problem', { text: `${kind}: ${String(error?.stack ?? error).slice(0, 2_000)}` })
  process.on('uncaughtException', problem('uncaught'))
  process.on('unhandledRejection', problem('unhandled rejection'))
  life = new Life(job, journal)
  watchLateness(journal)
  await life.begin()
}

/** A process that is not given the processor cannot keep its leases. */
function watchLateness(journal) {
  let last = now()
  const look = () => {
    const ms = now() - last - EVERY_MS
    if (ms >= LATE_MS) journal.write('late', { ms })
    last = now()
  }
  setInterval(look, EVERY_MS).unref()
}

class Life {
  stopped = false
  #orders = new Map()
  #opening = null
  #stopping = null
  #working = null

  constructor(job, journal) {
    this.job = job
    this.journal = journal
    this.points = new Points(journal)
    this.points.arm(job.armed ?? null)
    process.on('SIGTERM', () => this.stop())
    this.on('arm', ({ armed }) => {
      this.points.arm(armed)
      if (!armed) this.tell({ disarmed: true })
    })
    this.on('stop', () => this.stop())
    this.on('jump', ({ ms }) => {
      journal.write('hit', { point: 'clock', action: `jump by ${ms} ms` })
      globalThis.faultsSkewMs = ms
    })
  }

  on(order, listener) {
    this.#orders.set(order, listener)
  }

  hear(message) {
    this.#orders.get(message.order)?.(message)
  }

  tell(message) {
    if (process.connected) process.send(message)
  }

  async begin() {
    const { job } = this
    this.#opening = openDatabase(job, packageDir, this.#busyWriter())
    this.database = await this.#opening
    this.outbox = aftercommit.createOutbox({
      store: watched(this.database.store, this),
      logger: this.#logger(),
      retry: { maxAttempts: job.maxAttempts, policy: aftercommit.exponentialBackoff(20, 200) },
      poller: { leaseMs: job.leaseMs, pollIntervalMs: job.pollIntervalMs, batchSize: job.batchSize },
      dispatcher: { drainTimeoutMs: job.drainTimeoutMs, unroutableGraceMs: job.unroutableGraceMs },
    })
    registerHandlers({ ...this, exactlyOnce, fixedDelay: aftercommit.fixedDelay })
    await this.#migrate()
    if (job.started) await this.untilItWorks('start', () => this.outbox.start())
    if (this.#stopping) return
    this.tell({ ready: true })
    this.#working = roles[job.role](this, aftercommit)
    await this.#working
  }

  /** Who waits for a lock looks again and again: one line for many looks. */
  #busyWriter() {
    let last = 0
    return () => {
      if (now() - last < EVERY_MS) return
      last = now()
      this.journal.write('busy')
    }
  }

  /** Everybody migrates, at the same time. */
  async #migrate() {
    let isMigrating = true
    if (this.job.armed?.point === 'in-migrate') {
      this.database.onStatement(() => isMigrating && this.points.reach('in-migrate'))
    }
    await this.untilItWorks('migrate', () => this.outbox.migrate())
    isMigrating = false
  }

  /** As an application that waits for its database would do it. */
  async untilItWorks(what, attempt) {
    while (!this.#stopping) {
      try {
        return await attempt()
      } catch (error) {
        this.journal.write('log', { level: 'app', text: `${what} failed: ${error?.message}` })
        await sleep(100)
      }
    }
  }

  #logger() {
    const at = (level) => (fields, text) =>
      this.journal.write('log', { level, text, eventId: fields.event_id, error: fields.error_message })
    return { debug() {}, info() {}, warn: at('warn'), error: at('error') }
  }

  /** May be called twice; afterwards nothing keeps the process. */
  stop() {
    const again = this.outbox?.stop()
    this.#stopping ??= this.#stop()
    return again
  }

  get isStopping() {
    return this.#stopping !== null
  }

  async #stop() {
    // A signal can arrive before the database is open. begin() then creates the outbox, and starts nothing.
    await this.#opening
    await this.outbox.stop()
    // stop() does not wait for a run by hand.
    if (this.job.role === 'script') await this.#working
    await this.database.close()
    this.stopped = true
    this.journal.write('stopped')
    if (process.connected) process.disconnect()
  }
}
