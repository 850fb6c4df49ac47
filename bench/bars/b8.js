import { alternate, drain } from '../lib/measure.js'
import { compare } from '../lib/report.js'

export const title = 'drain a backlog in order'

/** 10,000 keys with ten events each, handled one at a time and in order, against the same without keys. */
export async function run(context) {
  const count = context.size(90_000, 18_000)
  const size = { count, warm: count / 9 }
  const keys = (count + size.warm) / 10
  const sides = {
    ordered: () => drain(context, 'ours', { ...size, shape: { keys } }),
    unordered: () => drain(context, 'ours', size),
  }
  const results = await alternate(context, sides, Object.keys(sides))
  const what = `drain ${count / 1000}k of ${keys.toLocaleString('en-US')} keys in order, vs unordered`
  return [compare(results, { what, ours: 'ordered', peer: 'unordered', atLeast: 0.5 })]
}
