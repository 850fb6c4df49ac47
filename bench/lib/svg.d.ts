export interface Bar {
  readonly name: string
  readonly value: number
  readonly low?: number
  readonly high?: number
}
export function lineChart(chart: {
  title: string
  xLabel: string
  yLabel: string
  series: readonly { name: string; points: readonly (readonly number[])[] }[]
  logX?: boolean
  logY?: boolean
}): string
export function barChart(chart: {
  title: string
  yLabel: string
  groups: readonly { label: string; bars: readonly Bar[] }[]
  log?: boolean
  format?: (value: number) => string
}): string
export function shareChart(chart: {
  title: string
  rows: readonly { label: string; value: number; low?: number; high?: number; note: string }[]
}): string
