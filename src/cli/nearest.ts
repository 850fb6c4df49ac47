/** The word that was probably meant; undefined when none is near. */
export function nearest(given: string, words: readonly string[]): string | undefined {
  const most = Math.max(1, Math.floor(given.length / 3))
  let best: string | undefined
  let least = most + 1
  for (const word of words) {
    const distance = Math.abs(word.length - given.length) > most ? least : editsBetween(given, word)
    if (distance >= least) continue
    least = distance
    best = word
  }
  return best
}

/** How many letters must be changed, added, taken out or swapped with their neighbour. */
function editsBetween(from: string, to: string): number {
  const rows = [Array.from({ length: to.length + 1 }, (_, at) => at)]
  const cell = (i: number, j: number) => rows[i]?.[j] as number
  for (let i = 1; i <= from.length; i++) {
    rows[i] = [i]
    for (let j = 1; j <= to.length; j++) {
      const replaced = cell(i - 1, j - 1) + (from[i - 1] === to[j - 1] ? 0 : 1)
      const isSwapped = i > 1 && j > 1 && from[i - 1] === to[j - 2] && from[i - 2] === to[j - 1]
      const swapped = isSwapped ? cell(i - 2, j - 2) + 1 : replaced
      rows[i]?.push(Math.min(replaced, swapped, cell(i - 1, j) + 1, cell(i, j - 1) + 1))
    }
  }
  return cell(from.length, to.length)
}
