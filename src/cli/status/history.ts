import type { Look } from './look.js'

/** As many as the widest window shows. */
const KEPT = 400
const BARS = '▁▂▃▄▅▆▇█'

/** What the sparklines show; null where nothing is known. */
export class History {
  readonly rate: (number | null)[] = []
  readonly lag: (number | null)[] = []
  readonly depth: (number | null)[] = []

  /** Null for a look that failed: the lines have a gap there. */
  add(look: Look | null): void {
    push(this.rate, look?.rates?.donePerSecond ?? null)
    push(this.lag, look?.oldestLagMs ?? null)
    push(this.depth, look?.pending ?? null)
  }
}

function push(values: (number | null)[], value: number | null): void {
  values.push(value)
  if (values.length > KEPT) values.shift()
}

/** The last values as bars from 0 to the largest of them; a space where nothing is known. */
export function sparkline(values: readonly (number | null)[], width: number): string {
  const shown = values.slice(-Math.max(1, width))
  const top = Math.max(0, ...shown.map((value) => value ?? 0))
  return shown
    .map((value) => {
      if (value === null) return ' '
      const step = top === 0 ? 0 : Math.ceil((value / top) * (BARS.length - 1))
      return BARS[Math.min(BARS.length - 1, Math.max(0, step))]
    })
    .join('')
}
