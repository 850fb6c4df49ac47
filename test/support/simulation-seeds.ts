import { World } from './simulation-world.js'

/** The worlds of one part of the seeds. Returns what was wrong, with the way to see it again; at most three of them. */
export async function simulate(part: number, parts: number): Promise<string> {
  const only = process.env.SIMULATION_SEED
  const count = Number(process.env.SIMULATION_SEEDS ?? 2_000)
  const failed: string[] = []
  const first = only === undefined ? part : Number(only)
  const last = only === undefined ? count : first
  for (let seed = first; seed <= last && failed.length < 3; seed += parts) {
    await new World(seed).run().catch((error) => {
      const again = `SIMULATION_SEED=${seed} npx vitest run src/outbox/simulation.test.ts`
      failed.push(`seed ${seed}: ${error.message}\nagain: ${again}`)
    })
  }
  return failed.join('\n\n')
}
