import { alternate, onEmpty } from '../lib/measure.js'
import { compare } from '../lib/report.js'

export const title = 'what publishing costs a transaction'

export async function run(context) {
  const count = context.size(16_000, 2_000)
  const job = { role: 'load', connections: 16, warm: count, count }
  const load = (side, handle) => () =>
    onEmpty(context, side, (url) => context.child({ ...job, side, url, handle }))
  const peer = 'bare INSERT'
  const sides = {
    ours: load('ours', false),
    [peer]: load('bare', false),
    'ours, handled': load('ours', true),
  }
  const results = await alternate(context, sides, ['ours', peer])
  const what = 'transaction with one publish, 16 connections, vs a bare INSERT'
  return [
    compare(results, { what, peer, atLeast: 0.85 }),
    compare(results, {
      what: 'the same, and handled in the process, vs a bare INSERT',
      ours: 'ours, handled',
      peer,
    }),
  ]
}
