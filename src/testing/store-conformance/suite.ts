import { type Define, runTheme as run } from '../themes.js'
import { Harness } from './harness.js'
import type { Need, StoreConformanceOptions } from './options.js'

export type DefineTest<Client> = Define<Harness<Client>, Need>

export interface Theme {
  readonly name: string
  define<Client>(test: DefineTest<Client>): void
}

/** Gives each test a store of its own. */
export function runTheme<Client>(theme: Theme, options: StoreConformanceOptions<Client>): void {
  run<Harness<Client>, Need>(theme, options, () => Harness.create(options))
}
