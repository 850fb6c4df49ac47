// Another screen, no cursor, no wrapping of long lines; and back.
const ENTER = '\u001b[?1049h\u001b[?25l\u001b[?7l'
const LEAVE = '\u001b[?7h\u001b[?25h\u001b[?1049l'

type Streams = Pick<NodeJS.Process, 'stdin' | 'stdout'>

export interface ScreenOptions {
  onKey(key: string): void
  onResize(): void
}

/** The terminal's other screen, drawn as a whole. However the process ends, short of SIGKILL, the terminal is as it was. */
export class Screen {
  readonly #streams: Streams
  readonly #onData: (data: Buffer | string) => void
  readonly #onResize: () => void
  readonly #restore = () => this.close()
  #open = true

  constructor(streams: Streams, { onKey, onResize }: ScreenOptions) {
    this.#streams = streams
    this.#onData = (data) => {
      for (const key of String(data)) onKey(key)
    }
    this.#onResize = onResize
    const { stdin, stdout } = streams
    // Also before the words about an uncaught error are printed.
    process.once('exit', this.#restore)
    stdout.on('resize', this.#onResize)
    if (stdin.isTTY) {
      stdin.setRawMode(true)
      stdin.on('data', this.#onData)
      stdin.resume()
    }
    stdout.write(ENTER)
  }

  /** Over what was there, without clearing first: nothing flickers. */
  draw(lines: readonly string[]): void {
    if (!this.#open) return
    this.#streams.stdout.write(`\u001b[H${lines.map((line) => `${line}\u001b[K`).join('\n')}\u001b[J`)
  }

  close(): void {
    if (!this.#open) return
    this.#open = false
    const { stdin, stdout } = this.#streams
    process.off('exit', this.#restore)
    stdout.off('resize', this.#onResize)
    stdout.write(LEAVE)
    if (!stdin.isTTY) return
    stdin.off('data', this.#onData)
    stdin.setRawMode(false)
    stdin.pause()
  }
}
