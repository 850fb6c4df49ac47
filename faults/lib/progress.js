/** A bar that is rewritten, on a terminal; nothing elsewhere. */
export class Progress {
  #stream
  #limits
  #began = performance.now()

  /** `rounds` and `minutes`: which of them comes first ends the campaign. */
  constructor(stream, { rounds, minutes }) {
    this.#stream = stream
    this.#limits = { rounds, minutes }
  }

  show({ n, store, fault, seed }, failed) {
    if (!this.#stream.isTTY) return
    const { rounds, minutes } = this.#limits
    const seconds = (performance.now() - this.#began) / 1000
    const part = Math.min(1, Math.max((n - 1) / rounds, seconds / (minutes * 60)))
    const bar = '█'.repeat(Math.round(part * 20)).padEnd(20, '░')
    const failures = failed > 0 ? `, ${failed} failed` : ''
    const line = `${bar} ${Math.round(part * 100)} %  round ${n}${failures}  ${fault} on ${store}, seed ${seed}`
    this.#stream.write(`\r\u001b[2K${line.slice(0, (this.#stream.columns ?? 100) - 1)}`)
  }

  clear() {
    if (this.#stream.isTTY) this.#stream.write('\r\u001b[2K')
  }
}
