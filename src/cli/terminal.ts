import { createInterface } from 'node:readline/promises'
import type { Readable, Writable } from 'node:stream'
import { styleText } from 'node:util'
import { UsageError } from './errors.js'

export type Style = 'bold' | 'dim' | 'red' | 'green' | 'yellow' | 'cyan'

interface Stream extends Writable {
  readonly isTTY?: boolean
  readonly columns?: number
  readonly rows?: number
}

export interface TerminalStreams {
  readonly stdin: Readable & { readonly isTTY?: boolean }
  readonly stdout: Stream
  readonly stderr: Stream
  readonly env: Readonly<Record<string, string | undefined>>
}

/** What a command prints: data on standard output, everything else on standard error. Colour only on a terminal. */
export class Terminal {
  readonly #streams: TerminalStreams
  readonly #hasColour: boolean

  constructor(streams: TerminalStreams = { ...pick(process), env: process.env }) {
    this.#streams = streams
    const { stdout, env } = streams
    // https://no-color.org: any text that is not empty counts.
    this.#hasColour = stdout.isTTY === true && !env.NO_COLOR && env.TERM !== 'dumb'
  }

  get isInteractive(): boolean {
    return this.#streams.stdout.isTTY === true
  }

  get width(): number {
    return this.#streams.stdout.columns ?? 100
  }

  get height(): number {
    return this.#streams.stdout.rows ?? 40
  }

  style(style: Style, text: string): string {
    return this.#hasColour ? styleText(style, text, { validateStream: false }) : text
  }

  /** A line on standard output. */
  print(text: string): void {
    this.write(`${text}\n`)
  }

  /** One JSON text on one line, on standard output. */
  printJson(value: unknown): void {
    this.print(JSON.stringify(value))
  }

  write(text: string): void {
    this.#streams.stdout.write(text)
  }

  /** A line for people, on standard error: it never mixes with data. */
  say(text: string): void {
    this.#streams.stderr.write(`${text}\n`)
  }

  /** How far long work is, on standard error of a terminal; nothing elsewhere. */
  progress(label: string, total: number): Progress {
    const { stderr } = this.#streams
    return new Progress(label, total, stderr.isTTY ? stderr : undefined)
  }

  /** Asks before something that cannot be undone. Where nobody can be asked, `--yes` has to be given. */
  async confirm(question: string, yes: boolean): Promise<boolean> {
    if (yes) return true
    const { stdin, stderr } = this.#streams
    if (!stdin.isTTY || !stderr.isTTY) throw new UsageError(`${question} Say so with --yes.`)
    const reader = createInterface({ input: stdin, output: stderr })
    try {
      const answer = await reader.question(`${question} [y/N] `)
      return /^y(es)?$/i.test(answer.trim())
    } finally {
      reader.close()
    }
  }
}

const BAR = 30

/** A bar in one line, drawn again in place. */
export class Progress {
  readonly #label: string
  readonly #total: number
  readonly #stream: Writable | undefined
  #done = 0
  #drawn = ''

  constructor(label: string, total: number, stream: Writable | undefined) {
    this.#label = label
    this.#total = total
    this.#stream = stream
    this.#draw()
  }

  add(count: number): void {
    this.#done += count
    this.#draw()
  }

  end(): void {
    if (this.#drawn) this.#stream?.write('\r\u001b[K')
  }

  #draw(): void {
    if (!this.#stream) return
    const share = this.#total === 0 ? 1 : Math.min(1, this.#done / this.#total)
    const full = Math.round(share * BAR)
    const bar = '█'.repeat(full) + '░'.repeat(BAR - full)
    const text = `${this.#label} ${bar} ${Math.floor(share * 100)} % (${this.#done})`
    if (text === this.#drawn) return
    this.#drawn = text
    this.#stream.write(`\r${text}\u001b[K`)
  }
}

function pick({ stdin, stdout, stderr }: NodeJS.Process) {
  return { stdin, stdout, stderr }
}
