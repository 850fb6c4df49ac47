import { expect, it } from 'vitest'
import { simulate } from '../../test/support/simulation-seeds.js'

it('several outboxes on one database: a random life, part 3 of the seeds', { timeout: 600_000 }, async () => {
  expect(await simulate(3, 4)).toBe('')
})
