import fc from 'fast-check'
import { describe, it } from 'vitest'
import { Model } from '../../test/support/dispatcher-model/model.js'
import { calmPlan, type Plan, stormyPlan } from '../../test/support/dispatcher-model/plan.js'

/** More by MODEL_RUNS=50000, the same again by MODEL_SEED=… and MODEL_PATH=…, as a failure prints them. */
const RUNS = Number(process.env.MODEL_RUNS ?? 4_000)
const { MODEL_SEED: seed, MODEL_PATH: path } = process.env

async function holds(plans: fc.Arbitrary<Plan>, numRuns: number): Promise<void> {
  await fc.assert(
    fc.asyncProperty(plans, async (plan) => {
      const problems = await new Model(plan).run()
      if (problems.length > 0) throw new Error(problems.slice(0, 5).join('\n'))
    }),
    { numRuns, ...(seed ? { seed: Number(seed) } : {}), ...(path ? { path } : {}) },
  )
}

/**
 * Random events with and without keys, for random handlers: plain ones, with limits, with batches, with retries of
 * their own. The watcher (test/support/dispatcher-model) sees every call and every outcome and compares them with what a
 * few lines of arithmetic say.
 */
describe('the dispatcher, against a model of it', { timeout: 600_000 }, () => {
  it('brings every event to the end that its handlers decide, by just the calls that it takes', async () => {
    await holds(calmPlan, Math.ceil(RUNS / 3))
  })

  it('forgets nothing, repeats nothing and keeps order and limits, whatever happens around it', async () => {
    await holds(stormyPlan, RUNS)
  })
})
