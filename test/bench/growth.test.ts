import { describe, expect, it } from 'vitest'
import { exponent } from '../../bench/growth/exponent.js'
import { payloadOfSize } from '../../bench/growth/payload.js'

describe('the exponent of a cost', () => {
  const sizes = [10, 1_000, 100_000]
  const growing = (power: number) => sizes.map((size) => [size, 3 * size ** power] as const)

  it.each([0, 1, 2, 0.5, -0.5])('finds the power %d that costs were made with', (power) => {
    expect(exponent(growing(power))).toBeCloseTo(power, 10)
  })

  it('lies between two slopes when the points are not on one line', () => {
    const bent = [
      [10, 1],
      [100, 1],
      [1_000, 10],
    ] as const
    expect(exponent(bent)).toBeCloseTo(0.5, 10)
  })

  it('refuses a single size', () => {
    expect(() => exponent([[10, 1]])).toThrow('two sizes')
  })
})

describe('a payload of a size', () => {
  it.each([100, 10_000, 500_000])('has about %d bytes', (bytes) => {
    const text = JSON.stringify(payloadOfSize(12_345, bytes))
    expect(Math.abs(text.length - bytes)).toBeLessThanOrEqual(Math.max(40, bytes / 50))
  })
})
