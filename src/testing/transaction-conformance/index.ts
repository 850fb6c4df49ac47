import { binding } from './binding.js'
import { concurrency } from './concurrency.js'
import { delivery } from './delivery.js'
import { duplicates } from './duplicates.js'
import { ended } from './ended.js'
import { failures } from './failures.js'
import { hooks } from './hooks.js'
import { inbox } from './inbox.js'
import { nesting } from './nesting.js'
import type { TransactionConformanceOptions } from './options.js'
import { runTheme, type Theme } from './suite.js'

export type { TransactionConformanceOptions, TransactionNeed, TransactionWorld } from './options.js'

const THEMES: readonly Theme[] = [
  delivery,
  nesting,
  concurrency,
  failures,
  ended,
  hooks,
  binding,
  duplicates,
  inbox,
]

/**
 * Registers the tests that every integration of an ORM's transactions passes, on each database that the ORM serves. It
 * uses node:assert and none of the runner's own assertions.
 *
 * @example
 * import { afterEach, beforeEach, describe, it } from 'vitest'
 * transactionConformance({ name: 'my ORM', runner: { describe, it, beforeEach, afterEach }, createWorld })
 */
export function transactionConformance<Tx extends object, Options = unknown>(
  options: TransactionConformanceOptions<Tx, Options>,
): void {
  options.runner.describe(`transaction conformance: ${options.name}`, () => {
    for (const theme of THEMES) runTheme(theme, options)
  })
}
