import { AsyncLocalStorage } from 'node:async_hooks'
import { NestedTransactionError } from '../../core/errors.js'
import { PATIENCE_MS, storeBusy } from './patience.js'

interface Waiter {
  proceed(): void
}

/** Who writes to a file within this process: one at a time, in the order in which they asked. */
interface Turns {
  /** When the present holder began. */
  since: number
  readonly waiting: Set<Waiter>
}

/** By real path: all stores of the process that have the same file open share it. */
const files = new Map<string, Turns>()
const holding = new AsyncLocalStorage<Turn>()

export class Turn {
  readonly #file: string
  /** A turn on another file, in which this one was taken. */
  readonly #outer: Turn | undefined
  #isOver = false

  private constructor(file: string) {
    this.#file = file
    // Those that are over would otherwise be kept for ever by a job that starts its successor.
    this.#outer = holding.getStore()?.innermostOpen()
  }

  /**
   * Resolves when it is this one's turn. Rejects at once when the caller is inside a turn of its own, which could
   * never end, and with STORE_BUSY when somebody else does not end his.
   */
  static async take(file: string): Promise<Turn> {
    if (isHeld(holding.getStore(), file)) throw nested()
    const turns = files.get(file)
    if (turns) await inLine(turns)
    else files.set(file, { since: performance.now(), waiting: new Set() })
    return new Turn(file)
  }

  /** Runs what knows that it holds the turn. */
  run<T>(body: () => T): T {
    return holding.run(this, body)
  }

  end(): void {
    if (this.#isOver) return
    this.#isOver = true
    const turns = files.get(this.#file) as Turns
    const [next] = turns.waiting
    if (!next) return void files.delete(this.#file)
    turns.waiting.delete(next)
    turns.since = performance.now()
    next.proceed()
  }

  innermostOpen(): Turn | undefined {
    return this.#isOver ? this.#outer?.innermostOpen() : this
  }

  holds(file: string): boolean {
    return (this.#file === file && !this.#isOver) || isHeld(this.#outer, file)
  }
}

function isHeld(turn: Turn | undefined, file: string): boolean {
  return turn?.holds(file) === true
}

/** However many are in front: what counts is that each of them ends his turn in time. */
function inLine(turns: Turns): Promise<void> {
  return new Promise((resolve, reject) => {
    let timer: ReturnType<typeof setTimeout>
    const waiter = {
      proceed: () => {
        clearTimeout(timer)
        resolve()
      },
    }
    const check = () => {
      const leftMs = turns.since + PATIENCE_MS - performance.now()
      if (leftMs > 0) {
        timer = setTimeout(check, leftMs)
        return
      }
      turns.waiting.delete(waiter)
      reject(storeBusy())
    }
    turns.waiting.add(waiter)
    timer = setTimeout(check, PATIENCE_MS)
  })
}

function nested(): NestedTransactionError {
  return new NestedTransactionError('it writes to the same SQLite file, which has one writer at a time')
}
