import { type Define, runTheme as run } from '../themes.js'
import { Harness } from './harness.js'
import type { BusConformanceOptions, BusNeed } from './options.js'

export interface Theme {
  readonly name: string
  define(test: Define<Harness, BusNeed>): void
}

/** Creates a new world for each test. */
export function runTheme(theme: Theme, options: BusConformanceOptions): void {
  run<Harness, BusNeed>(theme, options, () => Harness.create(options))
}
