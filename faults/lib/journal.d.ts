export interface JournalLine {
  readonly at: number
  readonly proc: string
  readonly what: string
  readonly [field: string]: unknown
}

/** Returns the lines of one process in the order of time. Returns an empty array if there is no journal. */
export function readJournal(dir: string, proc: string): JournalLine[]
