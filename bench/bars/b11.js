import { alternate } from '../lib/measure.js'
import { millis } from '../lib/numbers.js'
import { limit } from '../lib/report.js'

export const title = 'InMemoryEventBus'

export async function run(context) {
  const rounds = context.size(2_000, 500)
  const { ours } = await alternate(context, { ours: () => context.child({ role: 'bus', rounds }) })
  const row = (how, field) =>
    limit(ours, { what: `InMemoryEventBus: 100 events ${how}, median`, field, format: millis, below: 1 })
  return [row('one by one', 'oneByOne'), row('by one publishAll', 'together')]
}
