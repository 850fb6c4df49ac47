// One live line on a terminal, a plain line a second elsewhere, and the table at the end.

const number = new Intl.NumberFormat('en-US')

/** @param {number} ms */
export function inMs(ms) {
  return `${ms < 10 ? ms.toFixed(2) : number.format(Math.round(ms))} ms`
}

export class Screen {
  #out = process.stdout
  #started = 0
  #printedAt = 0

  /** Time counts from here. */
  start() {
    this.#started = performance.now()
  }

  /** A line that stays. @param {string} text */
  say(text) {
    if (this.#out.isTTY) this.#out.write('\r\x1b[2K')
    this.#out.write(`${text}\n`)
  }

  /** @param {{ committed: number, rolledBack: number, handled: number, lagMs: number }} state */
  progress({ committed, rolledBack, handled, lagMs }) {
    const seconds = (performance.now() - this.#started) / 1_000
    const line = [
      `${seconds.toFixed(1).padStart(5)} s`,
      `committed ${number.format(committed).padStart(6)}`,
      `rolled back ${number.format(rolledBack).padStart(5)}`,
      `handled ${number.format(handled).padStart(6)}`,
      `lag ${number.format(Math.round(lagMs)).padStart(5)} ms`,
    ].join('   ')
    if (this.#out.isTTY) this.#out.write(`\r\x1b[2K${line.slice(0, (this.#out.columns || 80) - 1)}`)
    else if (seconds - this.#printedAt >= 0.95) {
      this.#printedAt = seconds
      this.say(line)
    }
  }

  /** @param {[label: string, value: string | number, remark?: string][]} rows */
  table(rows) {
    const shown = rows.map(([label, value, remark = '']) => ({
      label,
      value: typeof value === 'number' ? number.format(value) : value,
      remark,
    }))
    const labels = Math.max(...shown.map((row) => row.label.length))
    const values = Math.max(...shown.map((row) => row.value.length))
    this.say('')
    for (const { label, value, remark } of shown) {
      this.say(`  ${label.padEnd(labels)}   ${value.padStart(values)}   ${remark}`.trimEnd())
    }
    this.say('')
  }
}
