import { append } from './append.js'
import { claim } from './claim.js'
import { deadLetters } from './dead-letters.js'
import { doorbell } from './doorbell.js'
import { failures } from './failures.js'
import { filters } from './filters.js'
import { inbox } from './inbox.js'
import { inspect } from './inspect.js'
import { interleavings } from './interleavings.js'
import { invalidRows } from './invalid-rows.js'
import { largeClaims } from './large-claims.js'
import type { StoreConformanceOptions } from './options.js'
import { ordering } from './ordering.js'
import { orderingDead } from './ordering-dead.js'
import { orderingRaces } from './ordering-races.js'
import { orderingScan } from './ordering-scan.js'
import { orderingSuspects } from './ordering-suspects.js'
import { overview } from './overview.js'
import { pause } from './pause.js'
import { prune } from './prune.js'
import { registry } from './registry.js'
import { renew } from './renew.js'
import { roundTrip } from './round-trip.js'
import { settle } from './settle.js'
import { storedSizes } from './stored-sizes.js'
import { runTheme, type Theme } from './suite.js'
import { suspects } from './suspects.js'
import { transactions } from './transactions.js'
import { unhandled } from './unhandled.js'
import { unroutable } from './unroutable.js'

export type {
  CallerTransaction,
  ConformanceRunner,
  InsertedRow,
  Need,
  StoreConformanceOptions,
  StoreUnderTest,
} from './options.js'

const THEMES: readonly Theme[] = [
  append,
  roundTrip,
  transactions,
  claim,
  largeClaims,
  storedSizes,
  invalidRows,
  filters,
  suspects,
  settle,
  failures,
  renew,
  interleavings,
  ordering,
  orderingSuspects,
  orderingDead,
  orderingScan,
  orderingRaces,
  deadLetters,
  inspect,
  overview,
  unroutable,
  unhandled,
  pause,
  inbox,
  registry,
  prune,
  doorbell,
]

/**
 * Registers the tests that every store passes unchanged. Call it inside a test file of your own runner; it uses
 * node:assert and none of the runner's own assertions.
 *
 * @example
 * import { afterEach, beforeEach, describe, it } from 'vitest'
 * storeConformance({ name: 'my store', runner: { describe, it, beforeEach, afterEach }, createStore })
 */
export function storeConformance<Client>(options: StoreConformanceOptions<Client>): void {
  options.runner.describe(`store conformance: ${options.name}`, () => {
    for (const theme of THEMES) runTheme(theme, options)
  })
}
