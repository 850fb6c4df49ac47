const UNITS = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['min', 60_000],
  ['s', 1_000],
] as const

/** `12 ms`, `3.4 s`, `2 h`. */
export function duration(ms: number): string {
  for (const [unit, size] of UNITS) {
    if (ms < size) continue
    const count = ms / size
    return `${count < 10 ? Number(count.toFixed(1)) : Math.round(count)} ${unit}`
  }
  return `${Math.round(ms)} ms`
}
