import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import { onTestFinished } from 'vitest'
import { until } from '../support/until.js'

const ROOT = path.resolve(import.meta.dirname, '../..')

/** A process of its own whose lines are read. Killed when the test ends. */
export class Program {
  readonly lines: string[] = []
  readonly #child: ChildProcess
  readonly #closed: Promise<unknown>
  #rest = ''
  stderr = ''

  constructor(command: readonly string[], env: Record<string, string> = {}) {
    const [program, ...args] = command as [string, ...string[]]
    this.#child = spawn(program, args, {
      cwd: ROOT,
      env: { ...process.env, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    this.#closed = once(this.#child, 'close')
    this.#child.stdout?.setEncoding('utf8').on('data', (text: string) => this.#hear(text))
    this.#child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.stderr += text
    })
    onTestFinished(() => this.#kill())
  }

  /** Runs a script of this repository with the Node that runs the tests. */
  static node(script: string, env: Record<string, string> = {}, ...args: string[]): Program {
    return new Program([process.execPath, path.join(ROOT, script), ...args], env)
  }

  get isAlive(): boolean {
    return this.#child.exitCode === null && this.#child.signalCode === null
  }

  /** The first line that begins so; the rest of it. */
  async says(beginning: string, timeoutMs = 60_000): Promise<string> {
    const find = () => this.lines.find((line) => line.startsWith(beginning))
    await until(() => find() !== undefined || !this.isAlive, { timeoutMs, what: `the line ${beginning}` })
    const line = find()
    if (line === undefined) throw new Error(`the program ended without: ${beginning}\n${this.stderr}`)
    return line.slice(beginning.length).trim()
  }

  signal(signal: 'SIGTERM' | 'SIGKILL'): void {
    this.#child.kill(signal)
  }

  /** When it has ended by itself, or by a signal it did not handle. */
  async ends(timeoutMs = 60_000): Promise<{ code: number | null; signal: string | null; stderr: string }> {
    await until(() => !this.isAlive, { timeoutMs, what: 'the end of the program' })
    await this.#closed
    return { code: this.#child.exitCode, signal: this.#child.signalCode, stderr: this.stderr }
  }

  #hear(text: string): void {
    const lines = (this.#rest + text).split('\n')
    this.#rest = lines.pop() ?? ''
    this.lines.push(...lines)
  }

  async #kill(): Promise<void> {
    if (this.isAlive) this.#child.kill('SIGKILL')
    await this.#closed
  }
}
