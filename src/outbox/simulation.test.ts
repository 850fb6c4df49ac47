import { describe, expect, it } from 'vitest'
import { simulate } from '../../test/support/simulation-seeds.js'
import { World } from '../../test/support/simulation-world.js'

/** More by SIMULATION_SEEDS=5000, one alone by SIMULATION_SEED=17. The other parts are in the files beside this one. */

/** Each of them must have happened in the first seeds, or the simulation does not show what it claims to. */
const IN_PLAY = [
  ...['claim', 'claimOrdered', 'claimUnroutable', 'settleIfLeased', 'renewIfLeased', 'append', 'heartbeat'],
  ...['instances', 'paused', 'pruneDone', 'pruneInstances', 'pruneProcessed', 'retryDead', 'ring', 'list'],
  ...['claim', 'claimOrdered', 'settleIfLeased', 'renewIfLeased', 'append', 'heartbeat', 'retryDead'].flatMap(
    (method) => [`${method} unreachable`, `${method} answer lost`],
  ),
  ...['commit lost', 'committed lost', 'cut off', 'connected', 'vanish', 'start', 'stop', 'pause', 'resume'],
  ...['settled done', 'settled retry', 'settled dead', 'settled release', 'announced dead'],
  ...['metric hot_enqueued', 'metric cold_enqueued', 'metric lease_lost', 'batch of several', 'batch of one'],
  ...['first', 'second', 'pattern', 'only', 'limited', 'batch', 'poison', 'killer'].map(
    (name) => `handler ${name}`,
  ),
  ...['aborted LEASE_LOST', 'aborted HANDLER_TIMEOUT', 'aborted SHUTDOWN', 'ended DONE', 'ended DEAD'],
]

async function traceOf(seed: number): Promise<string[]> {
  const trace: string[] = []
  await new World(seed, trace).run()
  return trace
}

describe('the simulation', () => {
  it('repeats itself: one seed is one sequence of calls, outcomes and times', {
    timeout: 600_000,
  }, async () => {
    const all = new Set<string>()
    for (let seed = 1; seed <= 12; seed++) {
      const trace = await traceOf(seed)
      expect(trace.length).toBeGreaterThan(200)
      expect(await traceOf(seed)).toEqual(trace)
      all.add(trace.join('\n'))
    }
    expect(all.size).toBe(12)
  })

  it('has all parts of an outbox in play, and every fault', { timeout: 600_000 }, async () => {
    const seen = new Map<string, number>()
    for (let seed = 1; seed <= 100; seed++) {
      const world = new World(seed)
      await world.run()
      for (const [what, times] of world.tally) seen.set(what, (seen.get(what) ?? 0) + times)
    }
    expect(IN_PLAY.filter((what) => !seen.has(what))).toEqual([])
  })
})

it('several outboxes on one database: a random life, part 1 of the seeds', { timeout: 600_000 }, async () => {
  expect(await simulate(1, 4)).toBe('')
})
