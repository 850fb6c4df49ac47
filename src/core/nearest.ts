/** Longer words are not compared: the comparison takes time and memory in proportion to the product of both lengths. */
const LONGEST = 100

/** Returns the word that was probably meant, or undefined if no word is similar. Case does not matter. */
export function nearest(word: string, words: readonly string[]): string | undefined {
  if (word.length > LONGEST) return undefined
  const given = word.toLowerCase()
  const most = Math.max(1, Math.floor(given.length / 3))
  let best: string | undefined
  let least = most + 1
  for (const known of words) {
    const isFar = Math.abs(known.length - given.length) > most
    const distance = isFar ? least : editsBetween(given, known.toLowerCase())
    if (distance >= least) continue
    least = distance
    best = known
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
