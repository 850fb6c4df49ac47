import type { OutboxStore } from '../../../src/store.js'
import type { TransactionSession } from '../../../src/transaction.js'

type Session = TransactionSession<unknown>
type Reply = 'go on' | 'keep' | 'undo'
type Command = (session: Session) => Promise<Reply>

const UNDO = new Error('the test rolls back')

/** A transaction of the store that is led from outside, one command after the other. */
export class LedTransaction {
  readonly #ended: Promise<void>
  readonly #commands: Command[] = []
  #wake = () => {}

  constructor(store: OutboxStore) {
    this.#ended = store.transaction((session) => this.#obey(session)).catch(unlessUndone)
    // Whoever waits for an answer, or for the end, is told.
    this.#ended.catch(() => {})
  }

  run<T>(work: (session: Session) => Promise<T>): Promise<T> {
    return this.#answer(async (session, answer) => {
      answer(work(session))
      return 'go on'
    })
  }

  savepoint(): Promise<void> {
    return this.#answer(async (session, answer) => {
      const body = (inner: Session) => {
        answer(Promise.resolve())
        return this.#obey(inner)
      }
      await session.savepoint(body).catch(unlessUndone)
      return 'go on'
    })
  }

  /** Who is behind the savepoint answers, when it is undone. */
  backToSavepoint(): Promise<void> {
    this.#send(async () => 'undo')
    return this.run(async () => {})
  }

  end(how: 'commit' | 'rollback'): Promise<void> {
    this.#send(async () => (how === 'commit' ? 'keep' : 'undo'))
    return this.#ended
  }

  #answer<T>(command: (session: Session, answer: (value: Promise<T>) => void) => Promise<Reply>): Promise<T> {
    const answer = new Promise<T>((resolve) => this.#send((session) => command(session, resolve)))
    const tooEarly = this.#ended.then(() => Promise.reject(new Error('the transaction has ended')))
    return Promise.race([answer, tooEarly])
  }

  #send(command: Command): void {
    this.#commands.push(command)
    this.#wake()
  }

  async #obey(session: Session): Promise<void> {
    for (;;) {
      const command = this.#commands.shift()
      if (!command) {
        await new Promise<void>((resolve) => {
          this.#wake = resolve
        })
        continue
      }
      const reply = await command(session)
      if (reply === 'keep') return
      if (reply === 'undo') throw UNDO
    }
  }
}

function unlessUndone(error: unknown): void {
  if (error !== UNDO) throw error
}
