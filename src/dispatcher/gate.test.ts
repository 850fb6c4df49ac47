import { describe, expect, it } from 'vitest'
import { Gate } from './gate.js'
import { NotStarted } from './outcome.js'

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
    expect([gate.enter(), gate.enter()]).toEqual([null, null])
    const [third, fourth] = [gate.enter(), gate.enter()]
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
    void gate.enter()
    void gate.enter()
    expect(gate.isAwaited).toBe(true)
    gate.leave()
    expect({ awaited: gate.isAwaited, free: gate.tryEnter() }).toEqual({ awaited: false, free: false })
  })

  it('refuses all that wait, and those inside keep their place', async () => {
    const gate = new Gate(1)
    void gate.enter()
    const waiting = [gate.enter(), gate.enter()]
    gate.giveBack()
    for (const one of waiting) await expect(one).rejects.toBeInstanceOf(NotStarted)
    expect({ awaited: gate.isAwaited, free: gate.tryEnter() }).toEqual({ awaited: false, free: false })
    gate.leave()
    expect(gate.tryEnter()).toBe(true)
  })

  it('has room until a hundred wait, and again when one of them got in or all were refused', async () => {
    const gate = new Gate(1)
    void gate.enter()
    const refused: Promise<unknown>[] = []
    const wait = () => refused.push(Promise.resolve(gate.enter()).catch(() => {}))
    for (let n = 0; n < 99; n++) wait()
    expect(gate.room()).toBeNull()
    wait()
    const room = gate.room()
    expect(await state(room)).toBe('waits')
    gate.leave()
    expect(await state(room)).toBe('in')
    wait()
    const again = gate.room()
    expect(await state(again)).toBe('waits')
    gate.giveBack()
    expect(await state(again)).toBe('in')
    await Promise.all(refused)
  })
})
