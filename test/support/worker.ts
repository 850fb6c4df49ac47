import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import { onTestFinished } from 'vitest'
import type { Health } from '../../src/index.js'
import type { LogLine } from './log-recorder.js'
import { until, within } from './waiting.js'

const SCRIPT = path.resolve(import.meta.dirname, '../traps/children/worker.mjs')

export interface WorkerOptions {
  readonly url: string
  readonly driver?: 'pg' | 'postgres.js'
  readonly store?: { readonly doorbell?: boolean }
  readonly outbox?: { readonly poller?: object; readonly dispatcher?: object }
  readonly pool?: object
}

interface Answer {
  readonly id?: number
  readonly value?: unknown
  readonly error?: string
  readonly handled?: string
  readonly hanging?: boolean
  readonly problem?: string
  readonly log?: LogLine
}

/** A process of its own on the built package, with `thing.happened` and `thing.hangs` handled. Killed after the test. */
export class Worker {
  readonly handled: string[] = []
  /** Every uncaught exception and unhandled rejection in it. */
  readonly problems: string[] = []
  readonly log: LogLine[] = []
  hanging = 0
  readonly #child: ChildProcess
  readonly #waiting = new Map<number, (answer: Answer) => void>()
  #asked = 0

  private constructor(options: WorkerOptions) {
    this.#child = fork(SCRIPT, {
      env: { ...process.env, WORKER: JSON.stringify(options) },
      execArgv: [],
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    })
    this.#child.on('message', (answer: Answer) => this.#hear(answer))
  }

  static async spawn(options: WorkerOptions): Promise<Worker> {
    const worker = new Worker(options)
    onTestFinished(() => worker.kill())
    await within('the worker is up', once(worker.#child, 'message'), 10_000)
    return worker
  }

  static async started(options: WorkerOptions): Promise<Worker> {
    const worker = await Worker.spawn(options)
    await worker.ask('start')
    return worker
  }

  ask(command: 'health'): Promise<Health>
  ask(command: 'resources'): Promise<string[]>
  ask(command: 'enqueue', argument: string): Promise<string>
  ask(command: 'start' | 'stop' | 'endPool'): Promise<void>
  async ask(command: string, argument?: string): Promise<unknown> {
    const id = ++this.#asked
    const answered = new Promise<Answer>((resolve) => this.#waiting.set(id, resolve))
    this.#child.send({ id, command, argument })
    const { value, error } = await within(`the worker answers to ${command}`, answered, 60_000)
    if (error !== undefined) throw new Error(error)
    return value
  }

  /** Rejects as well when the process would have died meanwhile, had nobody listened. */
  untilHandled(eventId: string, timeoutMs = 15_000): Promise<void> {
    const isHandled = () => {
      if (this.problems.length > 0) throw new Error(`in the worker: ${this.problems[0]}`)
      return this.handled.includes(eventId)
    }
    return until(`${eventId} is handled`, isHandled, timeoutMs)
  }

  /** Until the process has no timer and no socket that keeps it alive (its own channel to us aside). */
  async untilIdle(): Promise<void> {
    let left: string[] = []
    await until(
      'nothing is running',
      async () => {
        left = await this.ask('resources')
        return left.length === 0
      },
      3_000,
    ).catch((error: Error) => {
      throw new Error(`${error.message}; left: ${left.join(', ')}`)
    })
  }

  /** Lets go of the worker and waits for it to end by itself. Its exit code, or the word `alive` after twenty seconds. */
  async leave(): Promise<number | null | 'alive'> {
    const exited = once(this.#child, 'exit')
    this.#child.send({ command: 'leave' })
    try {
      const [code] = await within('exit', exited, 20_000)
      return code as number | null
    } catch {
      return 'alive'
    }
  }

  async kill(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return
    this.#child.kill('SIGKILL')
    await once(this.#child, 'exit')
  }

  #hear(answer: Answer): void {
    if (answer.id !== undefined) {
      this.#waiting.get(answer.id)?.(answer)
      this.#waiting.delete(answer.id)
    } else if (answer.handled !== undefined) this.handled.push(answer.handled)
    else if (answer.problem !== undefined) this.problems.push(answer.problem)
    else if (answer.log !== undefined) this.log.push(answer.log)
    else if (answer.hanging) this.hanging++
  }
}
