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

/** How many letters must be changed, added or taken out. */
function editsBetween(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, at) => at)
  for (let i = 1; i <= from.length; i++) {
    const next = [i]
    for (let j = 1; j <= to.length; j++) {
      const replaced = (row[j - 1] as number) + (from[i - 1] === to[j - 1] ? 0 : 1)
      next.push(Math.min(replaced, (row[j] as number) + 1, (next[j - 1] as number) + 1))
    }
    row = next
  }
  return row[to.length] as number
}
