import { withClient } from '../lib/databases.js'
import { alternate, drain } from '../lib/measure.js'
import { compare } from '../lib/report.js'

export const title = 'drain while vacuum is pinned'

/** The rate of the last 100k of a backlog, when all rows before them are dead and cannot be cleaned away. */
export async function run(context) {
  const size = { count: context.size(100_000, 20_000), warm: context.size(500_000, 60_000) }
  const pinned = (url, work) =>
    withClient(url, async (client) => {
      await client.query('begin isolation level repeatable read')
      await client.query('select count(*) from pg_class')
      return await work()
    })
  const sides = {
    pinned: () => drain(context, 'ours', { ...size, around: pinned }),
    unpinned: () => drain(context, 'ours', size),
  }
  const results = await alternate(context, sides, Object.keys(sides), 5)
  await context.databases.forget(`ours ${size.count + size.warm}`)
  const what = `drain ${size.count / 1000}k behind ${size.warm / 1000}k dead rows, vacuum pinned vs not`
  return [compare(results, { what, ours: 'pinned', peer: 'unpinned', atLeast: 0.9 })]
}
