import { millis } from '../lib/numbers.js'

export const title = 'InMemoryEventBus'

export async function run(context) {
  const result = await context.child({ role: 'bus', rounds: context.size(2_000, 500) })
  return [
    {
      what: 'InMemoryEventBus: 100 events, median',
      ours: millis(result.oneByOne),
      must: '< 1 ms',
      holds: result.oneByOne < 1 && result.together < 1,
      details: result,
    },
  ]
}
