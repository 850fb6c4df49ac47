export interface Spread {
  readonly median: number
  readonly lowest: number
  readonly highest: number
  readonly percent: number
  readonly runs: number
  readonly range: string
}
export interface Row {
  readonly bar?: string
  readonly what: string
  readonly ours?: string
  readonly peer?: string
  readonly ratio?: number
  readonly must?: string
  readonly holds?: boolean
  readonly error?: string
  readonly measured?: {
    readonly field: string
    readonly ours: Spread & { readonly name: string }
    readonly peer?: Spread & { readonly name: string }
    readonly ratio?: Spread
  }
  readonly share?: { readonly value: number; readonly low: number; readonly high: number }
  readonly details?: Record<string, unknown>
}
type Run = Record<string, number>
type Format = (value: number) => string

export function compare(
  results: Record<string, readonly Run[]>,
  how: {
    what: string
    peer: string
    ours?: string
    field?: string
    format?: Format
    less?: boolean
    paired?: boolean
    atLeast?: number
    details?: object
  },
): Row
export function limit(
  runs: readonly Run[],
  how: { what: string; field: string; format: Format; atMost?: number; below?: number; details?: object },
): Row
export function spreadTexts(row: Row): string[]
export function verdictOf(row: Row): string
export function tableOf(rows: readonly Row[]): string[]
export function reportOf<T extends object>(
  rows: readonly Row[],
  context: T,
): T & { holds: boolean; bars: Row[] }
