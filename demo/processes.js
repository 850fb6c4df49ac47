// The child processes of the demo: started here, and none of them outlives it.
import { fork } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

const END_LIMIT_MS = 15_000

/** @type {Set<Process>} */
const running = new Set()

export class Process {
  /** What the child counted, as of its last message. */
  counts = { committed: 0, rolledBack: 0, handled: 0 }
  /** Its outbox, as the rows it works on name it. */
  instance = ''
  killed = false
  #child
  /** @type {(error: Error) => void} */
  #fail = () => {}
  /** Rejects when the child ends by itself and with an error. */
  failed = new Promise((_, reject) => {
    this.#fail = reject
  })

  /**
   * @param {string} name
   * @param {string} file
   * @param {object} config
   */
  constructor(name, file, config) {
    this.name = name
    this.#child = fork(path.join(import.meta.dirname, file), [JSON.stringify(config)])
    running.add(this)
    this.failed.catch(() => {})
    this.#child.on('message', (message) => this.#heard(message))
    this.exited = once(this.#child, 'exit').then(([code, signal]) => {
      running.delete(this)
      if (code !== 0 && !this.killed) this.#fail(new Error(`${name} ended early (${signal ?? code})`))
    })
  }

  get pid() {
    return this.#child.pid ?? 0
  }

  /** @param {string} word */
  tell(word) {
    if (this.#child.connected) this.#child.send(word)
  }

  /** Resolves when the child has said so. @param {'ready' | 'soldOut'} word */
  says(word) {
    const said = new Promise((resolve) => {
      this.#child.on('message', (/** @type {Record<string, unknown>} */ message) => {
        if (message[word]) resolve(undefined)
      })
    })
    return Promise.race([said, this.failed])
  }

  /** Stops it in order. Rejects when it does not end by itself. */
  async end() {
    this.tell('stop')
    const late = sleep(END_LIMIT_MS, undefined, { ref: false }).then(() => {
      throw new Error(`${this.name} was stopped and did not end by itself`)
    })
    await Promise.race([this.exited, this.failed, late])
  }

  /** SIGKILL: it can do nothing about it. */
  kill() {
    this.killed = true
    this.#child.kill('SIGKILL')
    return this.exited
  }

  /** @param {any} message */
  #heard(message) {
    if (message.counts) Object.assign(this.counts, message.counts)
    if (message.ready) this.instance = message.ready
  }
}

/** For the end, whatever led to it. */
export function killAll() {
  return Promise.all([...running].map((child) => child.kill()))
}
