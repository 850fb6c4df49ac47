import type { FinalState, Line, Violation } from './checker.js'
import type { OpenedStore, StoreName } from './stores/index.js'

export interface RoundOptions {
  readonly store: StoreName
  /** One of `npm run faults -- --list`. */
  readonly fault: string
  readonly seed: number
  /** The folder whose dist/ the children use; default this repository. */
  readonly packageDir?: string | undefined
  readonly server: OpenedStore
  /** No further strike once it has fired. */
  readonly signal?: AbortSignal | undefined
}

export interface RoundReport {
  readonly store: StoreName
  readonly fault: string
  readonly seed: number
  /** The producers handled events too. */
  readonly isHot: boolean
  /** `proof` says what was hit; null when a strike missed its step. */
  readonly strikes: readonly { readonly n: number; readonly proof: string | null }[]
  readonly tookMs: number
  readonly verdicts: Readonly<Record<string, 'held' | 'violated' | 'not seen'>>
  readonly violations: readonly Violation[]
  readonly figures: Readonly<Record<string, number>>
  readonly kills: number
  readonly cuts: number
  readonly cutsAfterCommit: number
  readonly restarts: number
  readonly zombies: number
  readonly missed: number
  /** How often each step was hit. */
  readonly hits: Readonly<Record<string, number>>
  /** One for each strike. */
  readonly recoveriesMs: readonly number[]
  /** All invariants held, and no strike missed its step. */
  readonly isGood: boolean
}

export function runRound(
  options: RoundOptions,
): Promise<{ readonly lines: readonly Line[]; readonly state: FinalState; readonly report: RoundReport }>
