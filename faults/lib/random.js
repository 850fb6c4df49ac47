/** A sequence that depends on the seed alone (mulberry32 on a mixed seed). */
export function randomOf(seed) {
  let state = Math.imul(seed ^ 0x9e3779b9, 0x85ebca6b) | 0
  const next = () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }
  const below = (limit) => Math.floor(next() * limit)
  const between = (least, most) => least + below(most - least + 1)
  const pick = (from) => from[below(from.length)]
  const chance = (probability) => next() < probability
  return { next, below, between, pick, chance, shuffle: (list) => shuffled(list, below) }
}

function shuffled(list, below) {
  const mixed = [...list]
  for (let at = mixed.length - 1; at > 0; at--) {
    const other = below(at + 1)
    ;[mixed[at], mixed[other]] = [mixed[other], mixed[at]]
  }
  return mixed
}

/** A number for a text, the same everywhere. */
export function numberOf(text) {
  let value = 0x811c9dc5
  for (const char of text) value = Math.imul(value ^ char.codePointAt(0), 16_777_619) >>> 0
  return value
}
