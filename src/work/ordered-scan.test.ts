import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { delivery } from '../../test/support/dispatcher-world.js'
import type { ClaimedRow } from '../store.js'
import { linkRuns, OrderedScan, RUN_LENGTH } from './ordered-scan.js'

const row = (orderingKey: string) => ({ orderingKey }) as ClaimedRow

const scanned = (afterKey: string | null) => ({ rows: [], afterKey, nextDueMs: null })

describe('OrderedScan', () => {
  it('looks at nothing before there is a reason to', () => {
    expect(new OrderedScan().isWanted).toBe(false)
  })

  it('ends when it has seen the last key', () => {
    const scan = new OrderedScan()
    scan.want()
    expect(scan.next(1_000).afterKey).toBe('')
    scan.observe(scanned(null))
    expect(scan.isWanted).toBe(false)
  })

  it('needs one round for each reason that comes between two scans', () => {
    const scan = new OrderedScan()
    for (let round = 0; round < 3; round++) {
      scan.want()
      scan.next(1_000)
      if (round === 1) {
        scan.failed()
        scan.want()
        scan.next(1_000)
      }
      scan.observe(scanned(null))
      expect(scan.isWanted).toBe(false)
    }
  })

  it('goes on behind the last key that it has seen', () => {
    const scan = new OrderedScan()
    scan.want()
    scan.next(1_000)
    scan.observe(scanned('k5'))
    expect(scan.isWanted).toBe(true)
    expect(scan.next(1_000).afterKey).toBe('k5')
    scan.observe(scanned(null))
    expect(scan.isWanted).toBe(false)
  })

  it('begins again when something happened while it was asking', () => {
    const scan = new OrderedScan()
    scan.want()
    scan.next(1_000)
    scan.want()
    scan.observe(scanned(null))
    expect(scan.isWanted).toBe(true)
    expect(scan.next(1_000).afterKey).toBe('')
    scan.observe(scanned(null))
    expect(scan.isWanted).toBe(false)
  })

  it('begins again when something happened between two of its parts: it may be behind its back', () => {
    const scan = new OrderedScan()
    scan.want()
    scan.next(1_000)
    scan.observe(scanned('k5'))
    scan.want()
    expect(scan.next(1_000).afterKey).toBe('k5')
    scan.observe(scanned(null))
    expect(scan.isWanted).toBe(true)
    expect(scan.next(1_000).afterKey).toBe('')
  })

  it('asks the same again after a failure', () => {
    const scan = new OrderedScan()
    scan.want()
    scan.next(1_000)
    scan.observe(scanned('k5'))
    scan.next(1_000)
    scan.failed()
    expect(scan.isWanted).toBe(true)
    expect(scan.next(1_000).afterKey).toBe('k5')
  })

  it.each([
    [0, 1],
    [1, 1],
    [RUN_LENGTH, 1],
    [RUN_LENGTH * 10 + 1, 10],
    [1_000_000, 500],
  ])('asks for so many keys that their runs fit: %i places, %i keys', (room, keys) => {
    expect(new OrderedScan().next(room).keys).toBe(keys)
  })

  it('asks for more keys when the last ones brought fewer rows, and never for more rows than fit', () => {
    const scan = new OrderedScan()
    const two = () => scan.observe({ ...scanned('b'), rows: [row('a'), row('a'), row('b'), row('b')] })
    two()
    expect(scan.next(100)).toMatchObject({ keys: Math.floor(100 / ((RUN_LENGTH + 2) / 2)), limit: 100 })
    for (let more = 0; more < 60; more++) two()
    expect(scan.next(100).keys).toBe(50)
    scan.observe(scanned(null))
    expect(scan.next(100), 'a claim that brought nothing says nothing').toMatchObject({ keys: 50 })
    scan.observe({ ...scanned(null), rows: Array.from({ length: RUN_LENGTH }, () => row('a')) })
    expect(scan.next(100).keys).toBe(Math.floor(100 / RUN_LENGTH))
    expect(scan.next(0).limit).toBe(1)
  })

  it('misses no key, whatever happens when', () => {
    const action = fc.oneof(
      fc.record({ kind: fc.constant('ready' as const), key: fc.integer({ min: 0, max: 9 }) }),
      fc.record({ kind: fc.constant('ask' as const), most: fc.integer({ min: 1, max: 4 }) }),
      fc.constant({ kind: 'answer' as const }),
      fc.constant({ kind: 'fail' as const }),
    )
    fc.assert(
      fc.property(fc.array(action, { maxLength: 60 }), (actions) => {
        const scan = new OrderedScan()
        /** Keys with something to claim. */
        const ready = new Set<number>()
        let asking: { at: number; most: number; seen: number[] } | null = null
        const ask = (most: number) => {
          const { afterKey } = scan.next(1_000)
          const at = afterKey === '' ? -1 : Number(afterKey)
          asking = { at, most, seen: [...ready].filter((key) => key > at).sort((a, b) => a - b) }
        }
        const answer = () => {
          if (!asking) return
          const { seen, most } = asking
          const taken = seen.slice(0, most)
          for (const key of taken) ready.delete(key)
          scan.observe(scanned(seen.length > most ? String(taken.at(-1)) : null))
          asking = null
        }
        for (const one of actions) {
          if (one.kind === 'ready') {
            ready.add(one.key)
            scan.want()
          } else if (one.kind === 'ask' && !asking && scan.isWanted) ask(one.most)
          else if (one.kind === 'answer') answer()
          else if (one.kind === 'fail' && asking) {
            asking = null
            scan.failed()
          }
        }
        answer()
        for (let n = 0; n < 40 && scan.isWanted; n++) {
          ask(3)
          answer()
        }
        expect({ wanted: scan.isWanted, missed: [...ready] }).toEqual({ wanted: false, missed: [] })
      }),
      { numRuns: 3_000 },
    )
  })
})

describe('linkRuns', () => {
  it('chains the events of each key and returns the first of each', () => {
    const all = ['a', 'a', 'a', 'b', 'c', 'c'].map((orderingKey) => delivery({ orderingKey }))
    const firsts = linkRuns(all)
    expect(firsts).toEqual([all[0], all[3], all[4]])
    expect(firsts.map((one) => one.weight)).toEqual([3, 1, 2])
    expect(firsts[0]?.run).toEqual(all.slice(0, 3))
  })

  it('has nothing to do with nothing', () => {
    expect(linkRuns([])).toEqual([])
  })
})
