export function median(values) {
  return percentile(values, 0.5)
}

/** Linear between neighbours; of the numbers in `values`, in any order. */
export function percentile(values, share) {
  const sorted = Float64Array.from(values).sort()
  const at = (sorted.length - 1) * share
  const low = sorted[Math.floor(at)]
  return low + (sorted[Math.ceil(at)] - low) * (at - Math.floor(at))
}

/** Milliseconds on a clock that all processes of the machine share. */
export function now() {
  return Number(process.hrtime.bigint()) / 1e6
}

export const perSecond = (value) => `${Math.round(value).toLocaleString('en-US')} /s`
export const millis = (value) => `${value >= 100 ? value.toFixed(0) : value.toPrecision(3)} ms`
export const times = (value) => `${value.toFixed(value < 10 ? 2 : 1)} ×`
