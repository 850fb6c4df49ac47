// Runs rounds on a copy of the package until the checker finds what was planted in it.
import { endSpares } from '../lib/crew.js'
import { runRound } from '../lib/round.js'
import { openStore } from '../lib/stores/index.js'
import { plant, planted } from './index.js'

export class Hunt {
  #servers = new Map()

  /** Seed by seed, until the invariant is violated. Answers the rounds it took and the last verdict. */
  async find(name, mostRounds) {
    const bug = planted[name]
    const { dir, remove } = plant(name)
    try {
      for (let rounds = 1; ; rounds++) {
        const seed = bug.seed + rounds - 1
        const report = await this.#round(bug, seed, dir)
        const isFound = report.verdicts[bug.invariant] === 'violated'
        if (isFound || rounds === mostRounds) return { ...report, rounds, seed }
      }
    } finally {
      remove()
    }
  }

  /** The same scenario and seed on a copy without the bug. */
  async control(name, seed) {
    const { dir, remove } = plant()
    try {
      return await this.#round(planted[name], seed, dir)
    } finally {
      remove()
    }
  }

  async #round({ store, scenario }, seed, packageDir) {
    if (!this.#servers.has(store)) this.#servers.set(store, await openStore(store))
    const server = this.#servers.get(store)
    const { report } = await runRound({ store, fault: scenario, seed, packageDir, server })
    return report
  }

  async close() {
    endSpares()
    await Promise.all([...this.#servers.values()].map((server) => server.stop()))
  }
}
