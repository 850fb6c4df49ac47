/**
 * From values to places between `from` and `to`, and the round values worth a line. `tight`: ends at the outermost values
 * and not at the next round ones. A place outside is drawn at the edge.
 */
export function scale({ values, from, to, log = false, tight = false }) {
  const usable = values.filter((value) => Number.isFinite(value) && (!log || value > 0))
  const [least, most] = usable.length > 0 ? [Math.min(...usable), Math.max(...usable)] : [1, 10]
  const ticks = log ? logTicks(least, most) : linearTicks(Math.min(0, least), most)
  const [low, high] = tight ? [least, most] : [ticks[0], ticks.at(-1)]
  const mapped = (value) => (log ? Math.log10(value) : value)
  const span = mapped(high) - mapped(low)
  const at = (value) => {
    const inside = Math.min(high, Math.max(low, value))
    return span === 0 ? (from + to) / 2 : from + ((mapped(inside) - mapped(low)) / span) * (to - from)
  }
  return { at, ticks }
}

/** About five steps of 1, 2, 2.5 or 5 times a power of ten, from below the least to above the most. */
function linearTicks(least, most) {
  const rough = (most - least || 1) / 5
  const power = 10 ** Math.floor(Math.log10(rough))
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough)
  const [first, last] = [Math.floor(least / step), Math.ceil(most / step - 1e-9)]
  return Array.from({ length: last - first + 1 }, (_, n) => clean((first + n) * step))
}

/** Powers of ten; over a short way 1, 2 and 5 times each. */
function logTicks(least, most) {
  const [first, last] = [Math.floor(Math.log10(least)), Math.ceil(Math.log10(most) + 1e-9)]
  const powers = Array.from({ length: last - first + 1 }, (_, n) => 10 ** (first + n))
  const steps = powers.flatMap((power) => [1, 2, 5].map((factor) => clean(factor * power)))
  const low = steps.findLastIndex((step) => step <= least)
  const found = steps.findIndex((step) => step >= most && step > steps[low])
  const between = steps.slice(low, found + 1)
  const decades = between.filter((step) => Number.isInteger(clean(Math.log10(step))))
  if (between.length <= 8) return between
  return [...new Set([between[0], ...decades, between.at(-1)])]
}

const clean = (value) => Number(value.toPrecision(12))
