import { memoryWorld } from './kit/memory-world.js'
import { everyOrder } from './kit/suite.js'
import { WHOLE_CALLS } from './scenarios.js'

everyOrder('interleavings on the memory store', async () => memoryWorld(), WHOLE_CALLS)
