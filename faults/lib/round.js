// One round: a fresh database, two producers and two workers, one kind of fault that strikes several times, healing,
// draining, stopping, and the verdict.
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { scenarios } from '../scenarios/index.js'
import { check } from './checker.js'
import { Crew } from './crew.js'
import { openJournal, readJournals } from './journal.js'
import { startProxy } from './proxy.js'
import { numberOf, randomOf } from './random.js'
import { summaryOf } from './summary.js'
import { seen, sleep, until } from './waiting.js'

const ROOT = path.resolve(import.meta.dirname, '../..')
const DRAIN_MS = 60_000
const EXIT_MS = 12_000

const CREW = ['producer-1', 'producer-2', 'worker-1', 'worker-2']

const DEFAULTS = {
  leaseMs: 1_500,
  pollIntervalMs: 250,
  batchSize: 20,
  maxAttempts: 60,
  drainTimeoutMs: 3_000,
  workMs: 12,
  loops: 2,
  pauseMs: 60,
}

/** PostgreSQL can do without; a part of the rounds does, decided apart from everything else that is random. */
function hasDoorbell({ doorbell }, seed) {
  return doorbell ?? randomOf(numberOf(`doorbell ${seed}`)).chance(0.7)
}

/**
 * Answers all lines of the journal, the final state of the database, and the report. `server` comes from openStore();
 * `packageDir` is the folder whose dist/ the children use.
 */
export async function runRound({ store, fault, seed, packageDir = ROOT, server, signal }) {
  const scenario = scenarios[fault]
  if (!scenario) throw new Error(`no fault ${fault}; there are ${Object.keys(scenarios).join(', ')}`)
  if (!scenario.stores.includes(store)) throw new Error(`${fault} does not apply to ${store}`)
  const round = await Round.open({ store, scenario, seed, packageDir, server, signal })
  try {
    await round.run()
    const lines = readJournals(round.dir)
    const state = await round.database.finalState()
    return { lines, state, report: { ...round.facts(), ...summaryOf(lines, check(lines, state), round) } }
  } finally {
    await round.close()
  }
}

class Round {
  #proxies = []
  strikes = []
  /** Whether new processes must not publish any more. */
  isFinishing = false
  began = performance.now()

  static async open(given) {
    const round = new Round(given)
    round.database = await given.server.fresh()
    return round
  }

  constructor({ store, scenario, seed, packageDir, server, signal }) {
    Object.assign(this, { store, scenario, seed, server, signal })
    this.random = randomOf(seed)
    this.dir = fs.mkdtempSync(path.join(os.tmpdir(), 'aftercommit-faults-'))
    process.on('exit', this.#removeFolder)
    this.journal = openJournal(this.dir, 'campaign')
    this.settings = { ...DEFAULTS, doorbell: hasDoorbell(scenario, seed), ...scenario.settings?.(this) }
    /** In a part of the rounds the producers handle what they publish, from memory. */
    this.isHot = scenario.hot ?? this.random.chance(0.5)
    this.crew = new Crew({
      journal: this.journal,
      dir: this.dir,
      packageDir,
      jobOf: (...who) => this.#jobOf(...who),
    })
    this.crew.isSkewed = scenario.isSkewed ?? false
  }

  #jobOf(_name, role) {
    const url = this.#urls?.[role] ?? this.database.url
    const started = role === 'worker' || (role === 'producer' && this.isHot)
    const { store, seed, isFinishing } = this
    return { store, url, seed, started, isFinishing, ...this.settings }
  }

  #urls = null

  async run() {
    if (this.scenario.isProxied) await this.#openProxies()
    await this.scenario.before?.(this)
    for (const name of [...CREW, ...(this.scenario.crew ?? [])]) this.crew.start(name)
    await this.crew.untilReady()
    await sleep(this.random.between(100, 300))
    for (let n = 1; n <= this.scenario.strikes && !this.signal?.aborted; n++) await this.#strike(n)
    await this.scenario.heal?.(this)
    this.journal.write('healed')
    await this.#finish()
    await this.#drain()
    await this.#stop()
  }

  async #openProxies() {
    const open = () => startProxy(this.database.url, this.store)
    this.proxies = { producer: await open(), worker: await open() }
    this.#proxies = Object.values(this.proxies)
    this.#urls = { producer: this.proxies.producer.url, worker: this.proxies.worker.url }
  }

  /** Runs one strike. The strike returns a proof that it hit, or nothing if it missed. */
  async #strike(n) {
    const { name } = this.scenario
    this.journal.write('fault', { name, n })
    const proof = await this.scenario.strike(this, n)
    this.journal.write('over', { name, n, proof: proof ?? null })
    this.strikes.push({ n, proof: proof ?? null })
    await sleep(this.random.between(100, 400))
  }

  /** Waits until all producers have finished. */
  async #finish() {
    this.isFinishing = true
    const producers = () => this.crew.of('producer')
    const isFinished = () => {
      for (const producer of producers())
        if (producer.isReady && !producer.isFinished) producer.order('finish')
      return producers().every((producer) => producer.isFinished)
    }
    const finished = await seen(isFinished, 30_000, 50)
    if (!finished) this.journal.write('problem', { text: 'a producer did not come to its end' })
  }

  async #drain() {
    await this.crew.untilReady()
    const began = performance.now()
    const isEmpty = async () => (await this.database.pending()).length === 0
    if (await seen(isEmpty, DRAIN_MS, 40)) {
      this.journal.write('drained', { tookMs: Math.round(performance.now() - began) })
    } else {
      this.journal.write('undrained', { left: await this.database.pending() })
    }
  }

  /** Asks all processes to end. They must end by themselves. */
  async #stop() {
    this.crew.close()
    for (const member of this.crew.members) {
      member.isLeaving = true
      if (this.random.chance(0.5)) member.signal('SIGTERM')
      else member.order('stop')
    }
    const areGone = () => this.crew.members.every((member) => member.isGone)
    if (await seen(areGone, EXIT_MS)) return
    for (const member of this.crew.members.filter((candidate) => !candidate.isGone)) {
      member.isLeaving = false
      this.journal.write('problem', { text: `${member.proc} did not end by itself` })
      member.signal('SIGKILL')
    }
    await until('they are gone', areGone, 5_000)
  }

  /** Returns how many processes have ended at that point so far. */
  deaths(point) {
    return readJournals(this.dir).filter((line) => line.what === 'hit' && line.point === point).length
  }

  /** Number of completed runs of scripts. */
  runsOfScripts() {
    return readJournals(this.dir).filter((line) => line.what === 'ran').length
  }

  facts() {
    const { store, seed, isHot, strikes } = this
    const hasBell = store === 'postgres' && this.settings.doorbell
    const tookMs = Math.round(performance.now() - this.began)
    return { store, fault: this.scenario.name, seed, isHot, hasDoorbell: hasBell, strikes, tookMs }
  }

  async close() {
    this.crew.killAll()
    await Promise.all(this.crew.members.map((member) => member.ended))
    await Promise.all(this.#proxies.map((proxy) => proxy.close()))
    this.journal.close()
    this.#removeFolder()
    process.removeListener('exit', this.#removeFolder)
    await this.database.drop()
  }

  #removeFolder = () => {
    if (!process.env.FAULTS_KEEP) fs.rmSync(this.dir, { recursive: true, force: true })
  }
}
