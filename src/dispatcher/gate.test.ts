import { describe, expect, it } from 'vitest'
import { named } from '../../test/support/dispatcher-world.js'
import { Gate } from './gate.js'
import { NotStarted } from './outcome.js'

const one = named('one')

/** What has become of a promise by now. */
async function state(promise: Promise<unknown> | null): Promise<string> {
  if (promise === null) return 'free'
  const pending = new Promise((resolve) => setImmediate(() => resolve('waits')))
  return String(
    await Promise.race([
      promise.then(
        () => 'in',
        () => 'refused',
      ),
      pending,
    ]),
  )
}

describe('Gate', () => {
  it('lets as many in as its limit, and then one for each that leaves, in the order they came', async () => {
    const gate = new Gate(2)
    expect([gate.enter(one), gate.enter(one)]).toEqual([null, null])
    const [third, fourth] = [gate.enter(one), gate.enter(one)]
    expect(await Promise.all([third, fourth].map(state))).toEqual(['waits', 'waits'])
    gate.leave()
    expect(await Promise.all([third, fourth].map(state))).toEqual(['in', 'waits'])
    gate.leave()
    expect(await state(fourth)).toBe('in')
    gate.leave()
    gate.leave()
    expect([gate.tryEnter(), gate.tryEnter(), gate.tryEnter()]).toEqual([true, true, false])
  })

  it('nobody gets in by `tryEnter` while somebody waits', () => {
    const gate = new Gate(1)
    void gate.enter(one)
    void gate.enter(one)
    expect(gate.isAwaited).toBe(true)
    gate.leave()
    expect({ awaited: gate.isAwaited, free: gate.tryEnter() }).toEqual({ awaited: false, free: false })
  })

  it('refuses all that wait, and those inside keep their place', async () => {
    const gate = new Gate(1)
    void gate.enter(one)
    const waiting = [gate.enter(one), gate.enter(one)]
    gate.giveBack(() => true)
    for (const one of waiting) await expect(one).rejects.toBeInstanceOf(NotStarted)
    expect({ awaited: gate.isAwaited, free: gate.tryEnter() }).toEqual({ awaited: false, free: false })
    gate.leave()
    expect(gate.tryEnter()).toBe(true)
  })

  it('refuses those that it is told to, and the others keep their turn', async () => {
    const gate = new Gate(1)
    const [a, b, c] = [named('a'), named('b'), named('c')]
    void gate.enter(one)
    const waiting = [a, b, c].map((each) => gate.enter(each))
    gate.giveBack((each) => each === b)
    expect(await Promise.all(waiting.map(state))).toEqual(['waits', 'refused', 'waits'])
    gate.leave()
    expect(await Promise.all(waiting.map(state))).toEqual(['in', 'refused', 'waits'])
  })
})
