import { alternate, drain } from '../lib/measure.js'
import { compare } from '../lib/report.js'

export const title = 'drain in order beside a blocked key'

/** Measures other keys while one key, with 100,000 events behind its first event, waits for the retry of that event. */
export async function run(context) {
  const count = context.size(90_000, 18_000)
  const size = { count, warm: count / 9 }
  const keys = (count + size.warm) / 10
  const blocked = context.size(100_000, 20_000)
  const sides = {
    blocked: () => drain(context, 'ours', { ...size, shape: { keys, blocked } }),
    free: () => drain(context, 'ours', { ...size, shape: { keys } }),
  }
  const results = await alternate(context, sides, Object.keys(sides), 5)
  const what = `drain ${count / 1000}k of other keys beside ${blocked / 1000}k behind a blocked one, vs none blocked`
  return [compare(results, { what, ours: 'blocked', peer: 'free', atLeast: 0.9 })]
}
