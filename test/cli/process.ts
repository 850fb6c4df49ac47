import { spawn } from 'node:child_process'
import path from 'node:path'
import { onTestFinished } from 'vitest'
import { until } from '../support/until.js'

const ROOT = path.resolve(import.meta.dirname, '../..')

export interface CliOptions {
  readonly env?: Readonly<Record<string, string>>
  readonly cwd?: string
}

/** The command line tool as a child process without a terminal. Killed when the test ends. */
export class Cli {
  stdout = ''
  stderr = ''
  readonly exit: Promise<{ readonly code: number | null; readonly signal: NodeJS.Signals | null }>
  readonly #child

  constructor(args: readonly string[], { env = {}, cwd = ROOT }: CliOptions = {}) {
    this.#child = spawn(process.execPath, [path.join(ROOT, 'dist/cli/main.js'), ...args], {
      cwd,
      env: { PATH: process.env.PATH, HOME: process.env.HOME, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    this.#child.stdout.setEncoding('utf8').on('data', (text: string) => (this.stdout += text))
    this.#child.stderr.setEncoding('utf8').on('data', (text: string) => (this.stderr += text))
    this.exit = new Promise((resolve, reject) => {
      this.#child.once('error', reject)
      this.#child.once('close', (code, signal) => resolve({ code, signal }))
    })
    onTestFinished(() => void this.#child.kill('SIGKILL'))
  }

  get isAlive(): boolean {
    return this.#child.exitCode === null && this.#child.signalCode === null
  }

  kill(signal: NodeJS.Signals): void {
    this.#child.kill(signal)
  }

  /** Resolves when that much is on standard output. */
  async prints(what: RegExp): Promise<void> {
    await until(() => what.test(this.stdout) || !this.isAlive, {
      timeoutMs: 20_000,
      what: `it prints ${what}`,
    })
    if (!what.test(this.stdout)) throw new Error(`ended without ${what}:\n${this.stdout}\n${this.stderr}`)
  }
}

/** Runs it to its end. */
export async function cli(args: readonly string[], options?: CliOptions) {
  const run = new Cli(args, options)
  const { code, signal } = await run.exit
  return { code, signal, stdout: run.stdout, stderr: run.stderr }
}
