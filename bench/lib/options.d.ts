export interface BenchOptions {
  readonly bars: string[]
  readonly repeat: number
  readonly rows: number | undefined
  readonly out?: string
  readonly all: boolean
  readonly quick: boolean
  readonly socket: boolean
  readonly profile: boolean
  readonly json: boolean
  readonly help: boolean
}
export const USAGE: string
export function readOptions(argv: readonly string[], knownBars: readonly string[]): BenchOptions
