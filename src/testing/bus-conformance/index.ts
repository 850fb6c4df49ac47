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
 * Registers the tests that every bus must pass. The suite skips tests that need a missing member of the world, and prints their
 * titles. It uses node:assert instead of the assertions of the runner.
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
