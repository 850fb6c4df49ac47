export interface Patch {
  /** In dist/. */
  readonly file: string
  readonly text: string
  readonly replacement: string
}

export interface PlantedBug {
  readonly name: string
  readonly invariant: string
  readonly store: 'postgres' | 'mysql' | 'mariadb' | 'sqlite'
  readonly scenario: string
  readonly seed: number
  readonly patches: readonly Patch[]
}

export const planted: Readonly<Record<string, PlantedBug>>
export function plant(name?: string): { readonly dir: string; remove(): void }
