import { describe, inject } from 'vitest'
import { mariadbWorld } from './kit/mariadb-world.js'
import { everyOrder } from './kit/suite.js'
import { OPEN_CALLS, STOPPED_CALLS, WHOLE_CALLS } from './scenarios.js'

const url = inject('mysqlUrl')

// The services have said loudly why it could not be had.
describe.skipIf(url === null)('MySQL', () => {
  everyOrder('interleavings on MariaDB', () => mariadbWorld(url ?? ''), [
    ...WHOLE_CALLS,
    ...OPEN_CALLS,
    ...STOPPED_CALLS,
  ])
})
