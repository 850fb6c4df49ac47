import { randomOf } from './random.js'

const MAX_EXACT = 2 ** 53
const EDGES = [
  ...['1.7976931348623157e308', '1.7976931348623158e308', '1.7976931348623159e308', '17976931348623157e292'],
  ...[
    '18e307',
    '1798e305',
    '0.1e309',
    '0.01e310',
    '10e307',
    '1e309',
    '0e400',
    '0e-400',
    '0.0e999999999999',
    '1e400',
  ],
  ...[
    '1e-400',
    '5e-324',
    '50e-325',
    '0.5e-323',
    '3e-324',
    '2e-324',
    '4e-324',
    '4.94e-324',
    '1e-323',
    '1.5e-323',
  ],
  ...[
    '2.4703282292062327e-324',
    '2.4703282292062328e-324',
    '2.2250738585072014e-308',
    '2.225073858507201e-308',
  ],
  ...['2.2250738585072011e-308', '1.0000000000000001e-106', '1e-99999999999', '1e99999999999999999999'],
  ...[
    '44995302570365500',
    '20714911169720310',
    '274586684024451600',
    '2.7e22',
    '1e23',
    '2e23',
    '9.999999999999999e22',
  ],
  ...[
    '9007199254740993',
    '9007199254740992',
    '18446744073709551616',
    '12345678.12345678901',
    '0.1000000000000000055',
  ],
  ...[
    '100.00000000000000000000',
    `0.${'0'.repeat(990)}1e991`,
    `1.${'0'.repeat(998)}`,
    `1.${'0'.repeat(999)}`,
  ],
  ...[`0.${'0'.repeat(1_200)}`, `1${'0'.repeat(308)}`, `1${'0'.repeat(309)}`, `0.${'1'.repeat(1_200)}`],
]

/** Returns numbers as JSON text, without a sign. Most of them are close to a limit of the check of `publish()`. */
export function numberTexts(seed: number, count: number): readonly string[] {
  const random = randomOf(seed)
  const digits = (length: number) => Array.from({ length }, () => random.below(10)).join('')
  const wholeOf = (length: number) => `${1 + random.below(9)}${digits(length - 1)}`
  const bits = new DataView(new ArrayBuffer(8))
  const double = (highest: number) => {
    bits.setUint32(0, random.below(highest))
    bits.setUint32(4, random.below(2 ** 32))
    return bits.getFloat64(0)
  }
  const anyDouble = () => double(0x7ff00000)
  const subnormal = () => double(0x00100000)
  const largeInteger = () => MAX_EXACT * 2 ** random.below(75) * (1 + random.below(1e9) / 1e9)
  /** An exact multiple of half the distance between two doubles. */
  const halfway = () => {
    const scale = random.below(80)
    return String((BigInt(MAX_EXACT) + BigInt(random.below(MAX_EXACT))) * 2n ** BigInt(scale))
  }
  const shapes: readonly (() => string)[] = [
    () => JSON.stringify(anyDouble()),
    () => JSON.stringify(subnormal()),
    () => JSON.stringify(largeInteger()),
    () => withOtherDigit(JSON.stringify(anyDouble()), random.below(10)),
    () => withOtherDigit(JSON.stringify(subnormal()), random.below(10)),
    () => anyDouble().toExponential(14 + random.below(6)),
    () => largeInteger().toPrecision(14 + random.below(5)),
    halfway,
    // Short multiples of a power of ten are often halfway between two doubles.
    () => wholeOf(14 + random.below(4)) + '0'.repeat(random.below(8)),
    () => `${wholeOf(1 + random.below(17))}e${random.below(30)}`,
    () => wholeOf(1 + random.below(25)),
    () => `${wholeOf(1 + random.below(10))}.${digits(1 + random.below(12))}`,
    () => `0.${'0'.repeat(random.below(20))}${wholeOf(1 + random.below(20))}`,
    () => `${wholeOf(1 + random.below(4))}e${300 + random.below(12)}`,
    () => `${wholeOf(1 + random.below(4))}e-${315 + random.below(15)}`,
    () => `0.${'0'.repeat(random.below(3))}${wholeOf(2)}E+${305 + random.below(8)}`,
    () => `${wholeOf(1 + random.below(18))}.${digits(1 + random.below(4))}e${random.below(640) - 330}`,
    () => `0${random.chance(0.5) ? `.${'0'.repeat(1 + random.below(30))}` : ''}e${random.below(900) - 450}`,
    () => `1.${'0'.repeat(990 + random.below(20))}`,
  ]
  const texts = [...EDGES]
  while (texts.length < count) texts.push(random.pick(shapes)())
  return texts
}

function withOtherDigit(text: string, digit: number): string {
  const [mantissa = '', exponent] = text.split('e')
  return `${mantissa.slice(0, -1)}${digit}${exponent === undefined ? '' : `e${exponent}`}`
}
