/** One line that is rewritten, on a terminal; nothing elsewhere. */
export class Progress {
  #stream
  #began = Date.now()
  bar = ''

  constructor(stream) {
    this.#stream = stream
  }

  say(text) {
    if (!this.#stream.isTTY) return
    const seconds = Math.round((Date.now() - this.#began) / 1000)
    const line = `${this.bar}  ${text}  (${seconds} s)`.slice(0, (this.#stream.columns ?? 100) - 1)
    this.#stream.write(`\r\u001b[2K${line}`)
  }

  clear() {
    if (this.#stream.isTTY) this.#stream.write('\r\u001b[2K')
  }
}
