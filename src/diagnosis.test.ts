import { describe, expect, it, vi } from 'vitest'
import {
  clockCheck,
  instanceOf,
  LIMITS,
  leasesByInstance,
  ok,
  once,
  problem,
  runChecks,
  some,
} from './diagnosis.js'

const fine = async () => {}
const gone = async () => {
  throw new Error('nobody answers')
}

describe('runChecks', () => {
  it('goes one after the other, in the order given', async () => {
    const order: string[] = []
    const check = (name: string) => ({
      check: name,
      look: async () => {
        order.push(`begin ${name}`)
        await Promise.resolve()
        order.push(`end ${name}`)
        return ok('Fine.')
      },
    })
    const findings = await runChecks([check('a'), check('b')], fine)
    expect(findings.map((finding) => finding.check)).toEqual(['a', 'b'])
    expect(order).toEqual(['begin a', 'end a', 'begin b', 'end b'])
  })

  it('says of a check that fails that it could not look, and goes on', async () => {
    const look = () => {
      throw new Error('permission denied for view \u001b[31mx')
    }
    const findings = await runChecks(
      [
        { check: 'a', look },
        { check: 'b', look: () => problem('Bad.', 'Mend it.') },
      ],
      fine,
    )
    expect(findings).toEqual([
      {
        check: 'a',
        level: 'warning',
        says: 'Could not look: "permission denied for view \\u001b[31mx".',
        advice: expect.stringContaining('right'),
      },
      { check: 'b', level: 'problem', says: 'Bad.', advice: 'Mend it.' },
    ])
  })

  it('rejects when nobody answers any more', async () => {
    const checks = [{ check: 'a', look: () => Promise.reject(new Error('closed')) }]
    await expect(runChecks(checks, gone)).rejects.toThrow('nobody answers')
  })
})

describe('instanceOf', () => {
  it.each([
    ['a1b2:7', 'a1b2'],
    ['a1b2:0', 'a1b2'],
    ['a1b2:7:solo', 'a1b2'],
    ['a1b2:7:some', 'a1b2'],
    ['host:1:7', 'host:1'],
    ['host:1:7:solo', 'host:1'],
    ['somebody', 'somebody'],
    ['', ''],
  ])('%s → %s', (token, instance) => {
    expect(instanceOf(token)).toBe(instance)
  })

  it('adds up what an instance holds by several tokens', () => {
    const leases = leasesByInstance([
      ['b:1', 2],
      ['a:1', 1],
      ['c:1', 5],
      ['a:2:solo', 1],
    ])
    expect(leases.map((lease) => [lease.instance, lease.count])).toEqual([
      ['c', 5],
      ['a', 2],
      ['b', 2],
    ])
  })
})

describe('clockCheck', () => {
  const differing = (ms: number) => clockCheck(async () => Date.now() + ms, LIMITS)

  it('is a note as long as the difference is small', async () => {
    expect(await differing(0)).toMatchObject({ level: 'ok' })
    expect(await differing(-2_000)).toEqual(ok("The database's clock is 2 s behind the one of this process."))
  })

  it('is a warning when it is large, in either direction', async () => {
    expect(await differing(3_600_000)).toMatchObject({
      level: 'warning',
      says: expect.stringMatching(/1 h ahead/),
    })
    expect(await differing(-7_200_000)).toMatchObject({ level: 'warning' })
  })

  it('does not take a slow answer for a difference', async () => {
    vi.useFakeTimers({ toFake: ['Date'] })
    try {
      const slow = async () => {
        const told = Date.now()
        vi.setSystemTime(Date.now() + 30_000)
        return told
      }
      expect(await clockCheck(slow, LIMITS)).toMatchObject({ level: 'ok' })
    } finally {
      vi.useRealTimers()
    }
  })
})

it('once looks once, and shares a failure', async () => {
  let looks = 0
  const look = once(async () => {
    looks++
    throw new Error('no')
  })
  await expect(look()).rejects.toThrow('no')
  await expect(look()).rejects.toThrow('no')
  expect(looks).toBe(1)
})

it('some names a few, and counts the rest', () => {
  expect(some(['a', 'b'])).toBe('a, b')
  expect(some([...'abcdefg'])).toBe('a, b, c, d, e and 2 more')
})
