import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { orderCount, ordersOf } from './orders.js'
import { Play, type Scenario } from './play.js'
import type { Seat, World } from './world.js'

const TIMEOUT_MS = 120_000

/** Every order of every scenario on one store. Tells at the end how many there were. */
export function everyOrder(
  name: string,
  newWorld: () => Promise<World>,
  scenarios: readonly Scenario[],
): void {
  describe(name, () => {
    const seats = new Map<string, Seat>()
    let world: World
    let played = 0
    let waited = 0
    let startedAt = 0
    beforeAll(async () => {
      world = await newWorld()
      for (const session of ['A', 'B', 'C', 'Z']) seats.set(session, await world.seat(session))
      startedAt = performance.now()
    })
    afterEach(() => world.clear())
    afterAll(async () => {
      const seconds = ((performance.now() - startedAt) / 1_000).toFixed(1)
      console.log(`${name}: ${played} interleavings in ${seconds} s; a step waited for a lock in ${waited}`)
      await world?.close()
    })

    for (const [number, scenario] of scenarios.entries()) {
      const orders = ordersOf(scenario.scripts)
      it(`${scenario.name}: ${orders.length} orders`, { timeout: TIMEOUT_MS }, async () => {
        expect(orders.length).toBe(orderCount(scenario.scripts))
        for (const [index, order] of orders.entries()) {
          const type = `scenario.${number}.order.${index}`
          const play = new Play(world, seats, type, scenario.isOrdered ?? false)
          await play.run(scenario.before ?? [], order)
          played++
          if (play.hasWaited) waited++
        }
      })
    }
  })
}
