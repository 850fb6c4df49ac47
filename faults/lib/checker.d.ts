export interface Line {
  readonly at: number
  readonly proc: string
  readonly what: string
  readonly [field: string]: unknown
}

export interface FinalState {
  readonly rows: readonly {
    readonly eventId: string
    readonly seq: number
    readonly status: 'NEW' | 'DONE' | 'RETRY' | 'DEAD'
    readonly attempts: number
    readonly orderingKey: string | null
    readonly lockedBy: string | null
    readonly lastError: string | null
    readonly eventType: string
  }[]
  readonly business: readonly {
    readonly eventId: string
    readonly key: string | null
    readonly version: number | null
  }[]
  readonly effects: readonly { readonly handler: string; readonly eventId: string; readonly count: number }[]
  readonly handlers: Readonly<Record<string, readonly string[]>>
  readonly exactlyOnce: readonly string[]
  /** Done rows were deleted on purpose. */
  readonly pruned?: boolean
  /** Events that are meant to fail for ever, to kill or to block. */
  readonly poison?: readonly string[]
}

export interface Violation {
  readonly invariant: string
  readonly eventId?: string
  readonly text: string
  readonly story: readonly Line[]
}

export interface RoundVerdict {
  readonly verdicts: Readonly<Record<string, 'held' | 'violated' | 'not seen'>>
  readonly violations: readonly Violation[]
  readonly figures: Readonly<Record<string, number>>
}

export const INVARIANTS: Readonly<Record<string, unknown>>
export function check(lines: readonly unknown[], state: FinalState): RoundVerdict
export function storyText(violation: Violation): string
