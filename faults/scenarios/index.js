import content from './content.js'
import kills from './kills.js'
import network from './network.js'
import pauses from './pauses.js'
import servers from './servers.js'

/** By name: `stores` it applies to (`why` says why not to the others), `strikes` per round, and how it strikes. */
export const scenarios = Object.fromEntries(
  [kills, pauses, servers, network, content].flat().map((scenario) => [scenario.name, scenario]),
)
