import { setTimeout as pause } from 'node:timers/promises'
import { complaintOf } from '../complaint.js'
import { unlessAborted, whenAborted } from '../ending.js'
import { Screen } from '../screen.js'
import type { Terminal } from '../terminal.js'
import { cut, duration, safe } from '../text.js'
import { reasonOf } from '../words.js'
import { History } from './history.js'
import type { Look } from './look.js'
import type { Observer } from './observer.js'
import { viewOf } from './view.js'

export interface WatchOptions {
  readonly observer: Observer
  readonly terminal: Terminal
  readonly intervalMs: number
  readonly signal: AbortSignal
}

/** An answer that takes longer than this is missed. */
const PATIENCE_MS = 2_000
const CTRL_C = '\u0003'

/** A live view on the terminal's other screen, until q, Ctrl-C or the signal. What fails is shown, and tried again. */
export async function watchLive(options: WatchOptions): Promise<void> {
  const { observer, intervalMs } = options
  // Whoever cannot be seen at all is told so on the usual screen.
  const view = new LiveView(options, await unlessAborted(observer.look(), options.signal))
  const quit = new AbortController()
  const signal = AbortSignal.any([options.signal, quit.signal])
  const screen = new Screen(process, {
    onKey: (key) => {
      if (key === 'q' || key === 'Q' || key === CTRL_C) quit.abort()
    },
    onResize: () => draw(),
  })
  const draw = () => screen.draw(view.lines())
  const ticking = setInterval(() => {
    if (view.isWaiting) draw()
  }, 1_000)
  try {
    draw()
    await pause(intervalMs, undefined, { signal }).catch(() => {})
    await repeat({ ...options, signal }, async () => {
      const isWell = await view.look()
      if (!signal.aborted) draw()
      return isWell
    })
  } finally {
    clearInterval(ticking)
    screen.close()
  }
}

/** For a file, a pipe or a program: a JSON line or a block of text every interval. */
export async function watchPlain(options: WatchOptions, print: (look: Look) => void): Promise<void> {
  const { observer, terminal } = options
  print(await unlessAborted(observer.look(), options.signal))
  await pause(options.intervalMs, undefined, { signal: options.signal }).catch(() => {})
  await repeat(options, async () => {
    try {
      print(await observer.look())
      return true
    } catch (error) {
      // The end of the command closes the connections under a look that is under way.
      if (options.signal.aborted) return false
      const { code } = complaintOf(error)
      terminal.fail({ code, message: `${new Date().toISOString()} ${troubleOf(error)}; trying again` })
      return false
    }
  })
}

/** Rests as long as a look took that went well: counting a huge backlog must not keep the database busy. */
async function repeat({ signal, intervalMs }: WatchOptions, step: () => Promise<boolean>): Promise<void> {
  const stopped = whenAborted(signal)
  while (!signal.aborted) {
    const began = performance.now()
    const isWell = await Promise.race([step(), stopped])
    const took = isWell === true ? performance.now() - began : 0
    await pause(Math.max(intervalMs, took), undefined, { signal }).catch(() => {})
  }
}

class LiveView {
  readonly #options: WatchOptions
  readonly #history = new History()
  #look: Look
  #error: unknown = null
  /** When the look began that is under way. */
  #askedAt: number | null = null

  constructor(options: WatchOptions, first: Look) {
    this.#options = options
    this.#look = first
    this.#history.add(first)
  }

  /** False when it failed. */
  async look(): Promise<boolean> {
    this.#askedAt = performance.now()
    try {
      this.#look = await this.#options.observer.look()
      this.#error = null
    } catch (error) {
      this.#error = error
    }
    this.#askedAt = null
    this.#history.add(this.#error === null ? this.#look : null)
    return this.#error === null
  }

  /** Longer than usual. */
  get isWaiting(): boolean {
    return this.#waitedMs > PATIENCE_MS
  }

  get #waitedMs(): number {
    return this.#askedAt === null ? 0 : performance.now() - this.#askedAt
  }

  lines(): string[] {
    const { terminal, intervalMs } = this.#options
    const { width, height } = terminal
    const title = `aftercommit status, ${this.#look.store}, ${this.#look.at.toISOString().slice(0, 19)}Z, every ${duration(intervalMs)}, q ends it`
    const trouble = this.#trouble()
    const head = [
      terminal.style('bold', cut(title, width)),
      trouble === null ? '' : terminal.style('red', cut(trouble, width)),
    ]
    const style = terminal.style.bind(terminal)
    const frame = { width, height: height - head.length, style, history: this.#history }
    return [...head, ...viewOf(this.#look, frame)].slice(0, height)
  }

  #trouble(): string | null {
    if (this.#error !== null) return `${troubleOf(this.#error)}; trying again, below is what was last seen`
    return this.isWaiting ? `No answer of the database for ${duration(this.#waitedMs)}` : null
  }
}

/** In one sentence that others can follow. */
function troubleOf(error: unknown): string {
  return safe(reasonOf(error)).replace(/\.$/, '')
}
