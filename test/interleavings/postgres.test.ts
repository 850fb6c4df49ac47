import { inject } from 'vitest'
import { postgresWorld } from './kit/postgres-world.js'
import { everyOrder } from './kit/suite.js'
import { OPEN_CALLS, WHOLE_CALLS } from './scenarios.js'

everyOrder('interleavings on PostgreSQL', () => postgresWorld('PostgreSQL', inject('postgresUrl')), [
  ...WHOLE_CALLS,
  ...OPEN_CALLS,
])
