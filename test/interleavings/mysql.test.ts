import { describe, inject } from 'vitest'
import { flavor } from '../support/mysql-flavor.js'
import { mysqlWorld } from './kit/mysql-world.js'
import { everyOrder } from './kit/suite.js'
import { OPEN_CALLS, STOPPED_CALLS, WHOLE_CALLS } from './scenarios.js'

const url = inject('mysqlUrl')

// The services have said loudly why it could not be had.
describe.skipIf(url === null)(flavor, () => {
  everyOrder(`interleavings on ${flavor}`, () => mysqlWorld(url ?? ''), [
    ...WHOLE_CALLS,
    ...OPEN_CALLS,
    ...STOPPED_CALLS,
  ])
})
