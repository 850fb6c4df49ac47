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

/** Median, lowest and highest of some runs, and the longer of the two ways from the median in per cent of it. */
export function spreadOf(values) {
  const middle = median(values)
  const [lowest, highest] = [Math.min(...values), Math.max(...values)]
  const away = Math.max(highest - middle, middle - lowest)
  const percent = away === 0 ? 0 : (away / Math.abs(middle)) * 100
  return { median: middle, lowest, highest, percent, runs: values.length }
}

/** Milliseconds on a clock that all processes of the machine share. */
export function now() {
  return Number(process.hrtime.bigint()) / 1e6
}

export const perSecond = (value) => `${Math.round(value).toLocaleString('en-US')} /s`
export const millis = (value) => `${value >= 100 ? value.toFixed(0) : value.toPrecision(3)} ms`
export const times = (value) => `${value.toFixed(value < 10 ? 2 : 1)} ×`
export const megabytes = (value) => `${Math.round(value)} MB`
