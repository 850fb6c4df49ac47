export interface Study {
  readonly name: string
  readonly parts: readonly string[]
  /** How often by default; without it a study has no `--repeat`. */
  readonly repeat?: number
}

export interface StudyOptions {
  readonly quick: boolean
  readonly json: boolean
  readonly help: boolean
  readonly out?: string
  readonly repeat: number
  readonly only: readonly string[]
  readonly usage: string
}

export function readStudyOptions(argv: readonly string[], study: Study): StudyOptions
