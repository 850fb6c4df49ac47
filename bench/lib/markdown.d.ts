import type { Row } from './report.js'

export interface Report {
  readonly date: string
  readonly seconds: number
  readonly node: string
  readonly machine: {
    readonly cpu: string
    readonly cores: number
    readonly memoryGb: number
    readonly kernel: string
    readonly loadAtStart: readonly number[]
  }
  readonly postgres: { readonly version: string; readonly settings: Record<string, string> }
  readonly versions: Record<string, string>
  readonly peers: readonly { peer: string; bars: readonly string[]; configuration: string; why: string }[]
  readonly durations: Record<string, number>
  readonly options: { readonly repeat: number; readonly quick: boolean }
  readonly bars: readonly Row[]
}
export function toMarkdown(report: Report, charts: readonly string[]): string
