import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { onTestFinished } from 'vitest'
import { until } from './until.js'
import type { World } from './world.js'

const folder = new URL('../acceptance/children/', import.meta.url)
const pathOf = (file: string) => fileURLToPath(new URL(file, folder))

/** What a worker process tells; see test/acceptance/children/worker.js. */
export interface Told {
  readonly told: 'ready' | 'started' | 'ended' | 'aborted' | 'claimed' | 'published' | 'stopped' | 'log'
  readonly id?: string
  readonly ids?: readonly string[]
  readonly sweep?: boolean
  readonly attempt?: number
  readonly from?: string
  readonly to?: string
  readonly now?: number
  readonly code?: string
  readonly message?: string
  readonly eventId?: string
}

export interface WorkerSettings {
  readonly doorbell?: boolean
  /** False: events that ask the handler to hang are handled like any other. */
  readonly hangs?: boolean
  readonly maxAttempts?: number
  readonly poller?: { leaseMs?: number; pollIntervalMs?: number; batchSize?: number }
  readonly dispatcher?: { concurrency?: number; coldQueueSize?: number; drainTimeoutMs?: number }
  /** The folder of another release's worker.js; default the one under test. */
  readonly release?: string
  /** How wrong the clock of the process is. */
  readonly skewMs?: number
}

export class Worker {
  readonly told: Told[] = []
  readonly #process: ChildProcess
  readonly #exit: Promise<unknown>
  #stderr = ''

  constructor(world: Pick<World, 'url' | 'table'>, { skewMs, release, ...settings }: WorkerSettings) {
    const { url, table } = world
    const script = release === undefined ? pathOf('worker.js') : path.join(release, 'worker.js')
    this.#process = fork(script, [JSON.stringify({ url, table, ...settings })], {
      execArgv: skewMs === undefined ? [] : ['--import', pathOf('skewed-clock.js')],
      env: { ...process.env, SKEW_MS: String(skewMs ?? 0) },
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    })
    this.#exit = once(this.#process, 'exit')
    this.#process.on('message', (message) => this.told.push(message as Told))
    this.#process.stderr?.on('data', (chunk) => {
      this.#stderr += chunk
    })
    onTestFinished(() => this.kill('SIGKILL'))
  }

  get isAlive(): boolean {
    return this.#process.exitCode === null && this.#process.signalCode === null
  }

  /** The ids of what it told by this name, in order. */
  ids(told: Told['told']): string[] {
    return this.told.flatMap((one) => (one.told === told && one.id !== undefined ? [one.id] : []))
  }

  count(condition: (told: Told) => boolean): number {
    return this.told.filter(condition).length
  }

  async hears(condition: (told: Told) => boolean, what = condition.toString()): Promise<Told> {
    await until(() => this.told.some(condition) || !this.isAlive, { timeoutMs: 15_000, what })
    const found = this.told.find(condition)
    if (!found) throw new Error(`the worker ended before: ${what}\n${this.#stderr}`)
    return found
  }

  /** Until it has looked at the whole table this many times more. */
  async sweeps(times: number): Promise<void> {
    const sweeps = () => this.count((one) => one.told === 'claimed' && one.sweep === true)
    const before = sweeps()
    await until(() => sweeps() >= before + times, { what: `${times} sweeps of the worker` })
  }

  order(
    order: 'release' | 'publish' | 'stop',
    more: { events?: readonly object[]; publish?: object } = {},
  ): void {
    this.#process.send({ order, ...more })
  }

  signal(signal: 'SIGSTOP' | 'SIGCONT'): void {
    this.#process.kill(signal)
  }

  async kill(signal: 'SIGKILL' = 'SIGKILL'): Promise<void> {
    if (this.isAlive) this.#process.kill(signal)
    await this.#exit
  }

  /** Until it has ended, by itself or not. */
  async exits(timeoutMs = 5_000): Promise<void> {
    await until(() => !this.isAlive, { timeoutMs, what: 'the end of the worker' })
  }
}

/** A started worker process on the table of this world. It is killed when the test ends. */
export async function startWorker(
  world: Pick<World, 'url' | 'table'>,
  settings: WorkerSettings = {},
): Promise<Worker> {
  const worker = new Worker(world, settings)
  await worker.hears((one) => one.told === 'ready', 'the start of the worker')
  return worker
}
