import { describe, expect, it } from 'vitest'
import { gate } from '../testing/store-conformance/fixtures.js'
import { Gate } from './gate.js'
import { Workers } from './workers.js'

const turn = () => new Promise((resolve) => setImmediate(resolve))

function world(work: (workers: Workers) => Promise<void>) {
  const errors: unknown[] = []
  let jobs = 0
  const workers: Workers = new Workers({
    places: new Gate(2),
    isAwaited: () => jobs > 0,
    work: () => {
      jobs--
      return work(workers)
    },
    onError: (error) => errors.push(error),
  })
  const start = async (count: number) => {
    jobs = count
    workers.callNow()
    await turn()
  }
  return { workers, errors, start }
}

describe('Workers', () => {
  it('are not missing while they work, and not after they have left their places', async () => {
    const held = gate()
    const { workers, start } = world(async (all) => {
      await held.opened
      all.leave()
    })
    await start(2)
    expect(workers.missing).toBe(0)
    held.open()
    await turn()
    expect(workers.missing).toBe(0)
  })

  it('are missing, and their error is reported, when they end without leaving their places', async () => {
    const { workers, errors, start } = world(() => Promise.reject(new Error('broken')))
    await start(1)
    expect({ missing: workers.missing, errors }).toEqual({ missing: 1, errors: [new Error('broken')] })
    await start(5)
    expect({ missing: workers.missing, count: errors.length }).toEqual({ missing: 2, count: 2 })
  })
})
