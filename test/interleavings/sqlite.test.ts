import { sqliteDrivers } from '../support/sqlite-drivers.js'
import { sqliteWorld } from './kit/sqlite-world.js'
import { everyOrder } from './kit/suite.js'
import { WHOLE_CALLS } from './scenarios.js'

for (const driver of sqliteDrivers()) {
  everyOrder(`interleavings on SQLite by ${driver.name}`, () => sqliteWorld(driver), WHOLE_CALLS)
}
