import type { RoundVerdict } from '../lib/checker.js'

export interface RoundReport extends RoundVerdict {
  /** Strikes that did not meet their step. */
  readonly missed: number
  readonly tookMs: number
}

export class Hunt {
  find(
    name: string,
    mostRounds: number,
  ): Promise<RoundReport & { readonly rounds: number; readonly seed: number }>
  control(name: string, seed: number): Promise<RoundReport>
  close(): Promise<void>
}
