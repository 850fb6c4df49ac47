import { type Define, runTheme as run } from '../themes.js'
import { Harness } from './harness.js'
import type { TransactionConformanceOptions, TransactionNeed } from './options.js'

export interface Theme {
  readonly name: string
  define<Tx extends object, Options>(test: Define<Harness<Tx, Options>, TransactionNeed>): void
}

/** Gives each test a world of its own. */
export function runTheme<Tx extends object, Options>(
  theme: Theme,
  options: TransactionConformanceOptions<Tx, Options>,
): void {
  run<Harness<Tx, Options>, TransactionNeed>(theme, options, () => Harness.create(options))
}
