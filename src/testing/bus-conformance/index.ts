import { deadLetters } from './dead-letters.js'
import { groups } from './groups.js'
import { handlers } from './handlers.js'
import type { BusConformanceOptions } from './options.js'
import { order } from './order.js'
import { outages } from './outages.js'
import { redelivery } from './redelivery.js'
import { roundTrip } from './round-trip.js'
import { stopping } from './stopping.js'
import { runTheme, type Theme } from './suite.js'

export type { BusConformanceOptions, BusNeed, BusWorld, DeadLetteredMessage, TestedBus } from './options.js'

const THEMES: readonly Theme[] = [
  roundTrip,
  handlers,
  groups,
  redelivery,
  deadLetters,
  order,
  stopping,
  outages,
]

/**
 * Registers the tests that every bus passes. What a bus cannot do its world leaves out, and the tests that need it are
 * skipped with a line that says so. It uses node:assert and none of the runner's own assertions.
 *
 * @example
 * import { afterEach, beforeEach, describe, it } from 'vitest'
 * busConformance({ name: 'my broker', runner: { describe, it, beforeEach, afterEach }, createWorld })
 */
export function busConformance(options: BusConformanceOptions): void {
  options.runner.describe(`bus conformance: ${options.name}`, () => {
    for (const theme of THEMES) runTheme(theme, options)
  })
}
