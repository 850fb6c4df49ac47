import { describe, expect, it } from 'vitest'
import { named } from '../../test/support/dispatcher-world.js'
import type { Delivery } from './delivery.js'
import { NotStarted } from './not-started.js'
import { WorkerSlots } from './worker-slots.js'

/** Whether the delivery has proceeded, was refused, or waits. */
async function stateOf(acquired: Promise<void> | undefined): Promise<string> {
  const waits = new Promise<string>((resolve) => setImmediate(() => resolve('waits')))
  const proceeds = Promise.resolve(acquired).then(
    () => 'proceeds',
    (error) => (error instanceof NotStarted ? 'refused' : 'failed'),
  )
  return Promise.race([proceeds, waits])
}

function world(capacity: number, ...ids: string[]) {
  const slots = new WorkerSlots(capacity)
  const deliveries = ids.map((id) => named(id))
  return { slots, deliveries, first: deliveries[0] as Delivery, second: deliveries[1] as Delivery }
}

describe('WorkerSlots', () => {
  it('gives out as many slots as it has', () => {
    const { slots, deliveries } = world(2, 'a', 'b', 'c')
    expect(deliveries.map((delivery) => slots.tryAcquire(delivery))).toEqual([true, true, false])
    expect(deliveries.map(({ hasSlot }) => hasSlot)).toEqual([true, true, false])
    expect(slots.used).toBe(2)
  })

  it('passes a released slot to the delivery that has waited longest', async () => {
    const { slots, deliveries, first } = world(1, 'a', 'b', 'c')
    const acquired = deliveries.map((delivery) => slots.acquire(delivery))
    expect(await Promise.all(acquired.map(stateOf))).toEqual(['proceeds', 'waits', 'waits'])
    expect(slots.release(first)).toBe(false)
    expect(await Promise.all(acquired.map(stateOf))).toEqual(['proceeds', 'proceeds', 'waits'])
    expect([slots.used, first.hasSlot]).toEqual([1, false])
  })

  it('frees a slot for which no delivery waits, once', () => {
    const { slots, first } = world(1, 'a')
    slots.tryAcquire(first)
    expect([slots.release(first), slots.release(first), slots.used]).toEqual([true, false, 0])
  })

  it('gives no second slot to a delivery that has one', () => {
    const { slots, first } = world(2, 'a')
    slots.tryAcquire(first)
    expect([slots.acquire(first), slots.used]).toEqual([undefined, 1])
  })

  it('passes the slot of a delivery to the next one of its run', () => {
    const { slots, first, second } = world(1, 'a', 'b')
    slots.tryAcquire(first)
    slots.pass(first, second)
    expect([first.hasSlot, second.hasSlot, slots.used]).toEqual([false, true, 1])
  })

  it('refuses the waiting deliveries that are released, and the others keep their turn', async () => {
    const { slots, deliveries, first } = world(1, 'a', 'b', 'c')
    const acquired = deliveries.map((delivery) => slots.acquire(delivery))
    slots.refuse((delivery) => delivery === deliveries[1])
    expect(await Promise.all(acquired.map(stateOf))).toEqual(['proceeds', 'refused', 'waits'])
    slots.release(first)
    expect(await stateOf(acquired[2])).toBe('proceeds')
  })
})
