/** Steps at which this process can be told to die, to stop, to block or to be asked to end. */
export class Points {
  #journal
  #armed = null

  constructor(journal) {
    this.#journal = journal
  }

  /** `after`: the how-manieth time counts. Null disarms. */
  arm(armed) {
    this.#armed = armed && { ...armed, left: armed.after ?? 1 }
  }

  /** Answers the action that has just been taken here, if any. */
  reach(point) {
    const armed = this.#armed
    if (armed?.point !== point || --armed.left > 0) return undefined
    this.#armed = null
    this.#journal.write('hit', { point, action: armed.action })
    actions[armed.action](armed)
    return armed.action
  }
}

const self = process.pid

const actions = {
  kill: killNow,
  freeze: () => process.kill(self, 'SIGSTOP'),
  block: ({ ms }) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms),
  end: () => process.kill(self, 'SIGTERM'),
  'end twice': ({ ms }) => {
    process.kill(self, 'SIGTERM')
    setTimeout(() => process.kill(self, 'SIGTERM'), ms).unref()
  },
  /** The handler that is here never returns. */
  stick: () => process.kill(self, 'SIGTERM'),
}

/** Nothing runs behind it. */
export function killNow() {
  process.kill(self, 'SIGKILL')
  for (;;);
}
