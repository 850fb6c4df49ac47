import { execFileSync, spawn } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { expect, onTestFinished } from 'vitest'
import { within } from './waiting.js'

const ROOT = path.resolve(import.meta.dirname, '../..')
const MAIN = path.join(ROOT, 'dist/cli/main.js')
const LIMIT_MS = 20_000
const GOLDEN = path.join(ROOT, 'test/cli/golden')

export interface PtyOptions {
  readonly env?: Readonly<Record<string, string>>
  readonly cwd?: string
  readonly columns?: number
  readonly rows?: number
  /** What the shell does with the command, which it becomes otherwise. */
  readonly shell?: (command: string) => string
}

/** The command line tool in a pseudo-terminal, as a person at a keyboard has it: both outputs are one. */
export class Pty {
  output = ''
  readonly exit: Promise<number | null>
  readonly #child
  #changed = () => {}

  constructor(args: readonly string[], options: PtyOptions = {}) {
    const { env = {}, cwd = ROOT, columns = 100, rows = 30, shell = (command) => `exec ${command}` } = options
    const quoted = [process.execPath, MAIN, ...args].map((arg) => `'${arg.replaceAll("'", "'\\''")}'`)
    const command = `stty cols ${columns} rows ${rows} -echo; ${shell(quoted.join(' '))}`
    this.#child = spawn('script', ['--quiet', '--return', '--flush', '--command', command, '/dev/null'], {
      cwd,
      env: { PATH: process.env.PATH, HOME: process.env.HOME, TERM: 'xterm-256color', ...env },
    })
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      stream.setEncoding('utf8').on('data', (text: string) => {
        this.output += text
        this.#changed()
      })
    }
    this.exit = new Promise((resolve, reject) => {
      this.#child.once('error', reject)
      this.#child.once('close', (code) => {
        this.#changed()
        resolve(code)
      })
    })
    onTestFinished(() => void this.#child.kill('SIGKILL'))
  }

  /** Of the tool itself, below `script` and the shell. */
  get pid(): number {
    let pid = this.#child.pid as number
    for (;;) {
      const children = fs.readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim()
      if (children === '') return pid
      pid = Number(children.split(' ')[0])
    }
  }

  /** As if somebody had dragged the window's corner. */
  resize(columns: number, rows: number): void {
    const terminal = fs.readlinkSync(`/proc/${this.pid}/fd/1`)
    execFileSync('stty', ['-F', terminal, 'cols', String(columns), 'rows', String(rows)])
  }

  type(text: string): void {
    this.#child.stdin.write(text)
  }

  /** Resolves when that has been printed, behind the first so many characters. */
  async shows(what: RegExp, from = 0): Promise<void> {
    const deadline = performance.now() + LIMIT_MS
    while (!what.test(this.output.slice(from))) {
      expect(this.#child.exitCode, `ended without ${what}:\n${this.output}`).toBeNull()
      const changed = new Promise<void>((resolve) => {
        this.#changed = resolve
      })
      const left = deadline - performance.now()
      await within(`${what} in:\n${JSON.stringify(this.output.slice(-3_000))}`, changed, Math.max(1, left))
    }
  }
}

/** Runs it to its end. */
export async function inTerminal(args: readonly string[], options?: PtyOptions) {
  const pty = new Pty(args, options)
  const code = await pty.exit
  return { code, output: pty.output.replaceAll('\r\n', '\n') }
}

const CHANGING: readonly (readonly [RegExp, string])[] = [
  [/[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}/g, '<event id>'],
  [/\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?/g, '<time>'],
  [/\b[0-9a-f]{12}\b/g, '<instance>'],
  [/\b\d+(\.\d+)? (ms|s|min)\b/g, '<duration>'],
]

/**
 * Compares with test/cli/golden/<name>.txt, where what is new in every run has a word in its place. GOLDEN=write makes the
 * file anew; colours are kept, so that a look at it in a terminal shows what a user sees.
 */
export function expectGolden(name: string, output: string, more: typeof CHANGING = []): void {
  let text = output.replaceAll('\r\n', '\n')
  for (const [changing, word] of [...more, ...CHANGING]) text = text.replaceAll(changing, word)
  const file = path.join(GOLDEN, `${name}.txt`)
  if (process.env.GOLDEN === 'write') {
    fs.mkdirSync(GOLDEN, { recursive: true })
    fs.writeFileSync(file, text)
  }
  expect(fs.existsSync(file), `${file} is missing; GOLDEN=write makes it`).toBe(true)
  expect(text).toBe(fs.readFileSync(file, 'utf8'))
}
