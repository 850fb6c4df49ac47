import { createInterface } from 'node:readline/promises'
import type { Readable, Writable } from 'node:stream'
import { styleText } from 'node:util'
import type { Complaint } from './complaint.js'
import { UsageError } from './errors.js'
import { cut, safe } from './text.js'

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
  readonly #isJson: boolean
  #progress: Progress | undefined

  /** `args` are the arguments of the command line. They decide whether failures are printed as JSON as well. */
  constructor(args: readonly string[], streams: TerminalStreams = { ...pick(process), env: process.env }) {
    this.#streams = streams
    this.#isJson = wantsJson(args)
    const { stdout, env } = streams
    // https://no-color.org: any text that is not empty counts.
    this.#hasColour = stdout.isTTY === true && !env.NO_COLOR && env.TERM !== 'dumb'
  }

  get isInteractive(): boolean {
    return this.#streams.stdout.isTTY === true
  }

  get width(): number {
    return this.#streams.stdout.columns || 100
  }

  /** For tables: what goes to a file or a pipe is not cut. */
  get room(): number {
    return this.isInteractive ? this.width : Number.POSITIVE_INFINITY
  }

  get height(): number {
    return this.#streams.stdout.rows || 40
  }

  style(style: Style, text: string): string {
    return this.#hasColour ? styleText(style, text, { validateStream: false }) : text
  }

  /** A line on standard output. */
  print(text: string): void {
    this.write(`${text}\n`)
  }

  /** One JSON text on one line, on standard output. What a terminal could obey is escaped; it means the same. */
  printJson(value: unknown): void {
    this.print(safe(JSON.stringify(value)))
  }

  /**
   * Prints the result of a command as JSON. The result of a command that ended early or did not reach all events gets an
   * `error`, as fail() prints it, besides the line on standard error.
   */
  printResult(result: object, incomplete?: Pick<Complaint, 'code' | 'message'>): void {
    const error = incomplete && { code: incomplete.code, message: incomplete.message }
    this.printJson(error ? { ...result, error } : result)
  }

  write(text: string): void {
    this.#streams.stdout.write(text)
  }

  /** A line for people, on standard error: it never mixes with data. */
  say(text: string): void {
    this.#progress?.hide()
    this.#streams.stderr.write(`${text}\n`)
    this.#progress?.draw()
  }

  /** Reports a failure as a line on standard error and, with `--json`, as `{"error":{code,message}}` on standard output. */
  fail({ code, message }: Pick<Complaint, 'code' | 'message'>): void {
    this.say(`aftercommit: ${message}`)
    if (this.#isJson) this.printJson({ error: { code, message } })
  }

  /** How far long work is, on standard error of a terminal; nothing elsewhere. Without a total it counts. */
  progress(label: string, total?: number): Progress {
    const { stderr } = this.#streams
    this.#progress = new Progress(label, total, stderr.isTTY ? stderr : undefined)
    return this.#progress
  }

  /** Asks before something that cannot be undone. Where nobody can be asked, `--yes` has to be given. */
  async confirm(question: string, yes: boolean): Promise<boolean> {
    if (yes) return true
    const { stdin, stderr } = this.#streams
    if (!stdin.isTTY || !stderr.isTTY) throw new UsageError(`${question} Say so with --yes.`)
    const reader = createInterface({ input: stdin, output: stderr })
    // Ctrl-C and Ctrl-D are a no; an answer that never comes would leave the process without an end.
    const refused = new Promise<string>((resolve) => {
      for (const event of ['SIGINT', 'close'] as const) reader.once(event, () => resolve('\n'))
    })
    try {
      const answer = await Promise.race([reader.question(`${question} [y/N] `).catch(() => ''), refused])
      // Nobody has typed the end of the line, so that what is said next would stand beside the question.
      if (answer === '\n') stderr.write('\n')
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
  readonly #total: number | undefined
  readonly #stream: Stream | undefined
  #done = 0
  #drawn = ''
  #ended = false

  constructor(label: string, total: number | undefined, stream: Stream | undefined) {
    this.#label = label
    this.#total = total
    this.#stream = stream
    this.draw()
  }

  add(count: number): void {
    this.#done += count
    this.draw()
  }

  end(): void {
    this.#ended = true
    this.hide()
  }

  /** Takes it off the screen, so that something else can be written there. */
  hide(): void {
    if (this.#drawn) this.#stream?.write('\r\u001b[K')
    this.#drawn = ''
  }

  draw(): void {
    if (!this.#stream || this.#ended) return
    const columns = this.#stream.columns || 100
    // A line that the terminal breaks could not be drawn again in place.
    const text = cut(`${this.#label} ${this.#state(columns)}`, columns - 1)
    if (text === this.#drawn) return
    this.#drawn = text
    this.#stream.write(`\r${text}\u001b[K`)
  }

  #state(columns: number): string {
    if (this.#total === undefined) return String(this.#done)
    const share = this.#total === 0 ? 1 : Math.min(1, this.#done / this.#total)
    const count = `${Math.floor(share * 100)} % (${this.#done})`
    const bar = Math.max(0, Math.min(BAR, columns - this.#label.length - count.length - 3))
    const full = Math.round(share * bar)
    return `${'█'.repeat(full)}${'░'.repeat(bar - full)} ${count}`
  }
}

/** Whether `--json` is among the options. The check works on arguments that cannot be parsed, too. */
function wantsJson(args: readonly string[]): boolean {
  const end = args.indexOf('--')
  const options = end < 0 ? args : args.slice(0, end)
  return options.some((arg) => arg === '--json' || arg.startsWith('--json='))
}

function pick({ stdin, stdout, stderr }: NodeJS.Process) {
  return { stdin, stdout, stderr }
}
