import { expect, it } from 'vitest'
import { simulate } from '../../test/support/simulation-seeds.js'

it('several outboxes on one database: a random life, part 2 of the seeds', { timeout: 600_000 }, async () => {
  expect(await simulate(2, 4)).toBe('')
})
