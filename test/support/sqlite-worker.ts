import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { onTestFinished } from 'vitest'
import { until } from './until.js'

const SCRIPT = fileURLToPath(new URL('../acceptance/sqlite/worker.js', import.meta.url))

export interface SqliteWorkerOptions {
  readonly driver: string
  readonly file: string
  readonly hangs?: boolean
  readonly poller?: {
    readonly leaseMs?: number
    readonly pollIntervalMs?: number
    readonly batchSize?: number
  }
}

/** One call of its handler. */
export interface SqliteCall {
  readonly handled: string
  /** By a clock that all processes share, in nanoseconds. */
  readonly at: string
  readonly key?: string
  readonly n: number
}

interface Told extends Partial<SqliteCall> {
  readonly ready?: true
  readonly log?: string
}

/** A process of its own that handles everything in one file; see test/acceptance/sqlite/worker.js. */
export class SqliteWorker {
  readonly calls: SqliteCall[] = []
  /** Whatever it warned of, and every error that nobody caught. */
  readonly log: string[] = []
  readonly #child: ChildProcess
  readonly #exit: Promise<unknown>
  #isReady = false

  private constructor(options: SqliteWorkerOptions) {
    this.#child = fork(SCRIPT, [JSON.stringify(options)], {
      execArgv: ['--no-warnings'],
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    })
    this.#exit = once(this.#child, 'exit')
    this.#child.on('message', (told: Told) => {
      if (told.ready) this.#isReady = true
      if (told.handled !== undefined) this.calls.push(told as SqliteCall)
      if (told.log !== undefined) this.log.push(told.log)
    })
  }

  /** It is killed when the test ends. */
  static async start(options: SqliteWorkerOptions): Promise<SqliteWorker> {
    const worker = new SqliteWorker(options)
    onTestFinished(() => worker.kill())
    await until(() => worker.#isReady, { timeoutMs: 20_000, what: 'the start of the worker' })
    return worker
  }

  get handled(): string[] {
    return this.calls.map((call) => call.handled)
  }

  async stop(): Promise<void> {
    this.#child.send('stop')
    await this.#exit
  }

  async kill(): Promise<void> {
    if (this.#child.exitCode === null && this.#child.signalCode === null) this.#child.kill('SIGKILL')
    await this.#exit
  }
}
