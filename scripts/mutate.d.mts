export interface Mutant {
  readonly start: number
  readonly end: number
  /** Replaces the source between `start` and `end`. */
  readonly text: string
}

/** Returns every mutant of a TypeScript source, in the order of their positions. */
export function mutantsOf(source: string): Mutant[]
