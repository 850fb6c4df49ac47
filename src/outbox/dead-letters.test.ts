import { expect, it } from 'vitest'
import { createTestOutbox } from '../testing/index.js'

it.each([
  [{ limit: -1 }, /limit/],
  [{ limit: 0 }, /limit/],
  [{ limit: 1.5 }, /limit/],
  [{ limit: '10' }, /limit/],
  [{ afterSeq: Number.NaN }, /afterSeq/],
  [{ afterSeq: -1 }, /afterSeq/],
  [{ eventtype: 'a' }, /eventtype.+eventType/],
  [{ status: 'DONE' }, /status/],
])(
  'a list of dead letters with %j is refused by name, whatever the store makes of it',
  async (filter, named) => {
    const { deadLetters } = createTestOutbox()
    await expect(deadLetters.list(filter as Parameters<typeof deadLetters.list>[0])).rejects.toThrow(named)
  },
)
