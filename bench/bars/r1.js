import { withClient } from '../lib/databases.js'
import { alternate, medianOf, onEmpty } from '../lib/measure.js'
import { millis, percentile } from '../lib/numbers.js'
import { payloadOf, TYPE } from '../lib/payload.js'
import { compare } from '../lib/report.js'

export const title = 'publishing while old rows are pruned'
const RATE = 500
const DAY_MS = 24 * 3_600_000
/** Time that is measured before the pruning begins, and time at the start that is left out. */
const BEFORE_MS = 8_000
const WARM_MS = 3_000

/** `--rows` says how many old rows there are. */
export async function run(context) {
  const count = context.rows ?? context.size(500_000, 100_000)
  const results = await alternate(context, { ours: () => once(context, count) })
  const seconds = medianOf(results.ours, 'seconds')
  const what = `p99 of a publish at ${RATE} tx/s while ${count / 1000}k old rows are pruned (${Math.round(count / seconds / 1000)}k/s), vs before`
  const p99Of = (field) => results.ours.map((run) => ({ ...run, p99: run[field] }))
  const sides = { during: p99Of('during'), before: p99Of('before') }
  const how = { field: 'p99', format: millis, less: true, atLeast: 0.5 }
  return [compare(sides, { what, ours: 'during', peer: 'before', ...how })]
}

function once(context, count) {
  return onEmpty(context, 'ours', async (url) => {
    context.say(`filling ${count.toLocaleString('en-US')} old rows`)
    await withClient(url, (client) => fill(client, count))
    const limitMs = 180_000 + count / 10
    const job = { side: 'ours', url, limitMs, connections: 16, rate: RATE, options: { keepRows: true } }
    const publisher = context.startChild({ role: 'publish', ...job })
    await publisher.said('ready')
    const measured = new Promise((resolve) => setTimeout(resolve, WARM_MS + BEFORE_MS))
    await Promise.race([measured, publisher.result])
    const { began, ended } = await context.child({
      role: 'prune',
      side: 'ours',
      url,
      limitMs,
      count,
      batch: 1_000,
      olderThanMs: 7 * DAY_MS,
    })
    publisher.say('stop')
    const { due, took } = await publisher.result
    const p99 = (from, to) =>
      percentile(
        took.filter((_, id) => due[id] >= from && due[id] < to),
        0.99,
      )
    return {
      before: p99(due[0] + WARM_MS, began),
      during: p99(began, ended),
      seconds: (ended - began) / 1000,
    }
  })
}

async function fill(client, count) {
  await client.query(
    `insert into outbox_event (event_id, event_type, payload, payload_size, status, created_at, available_at, done_at)
     select 'old-' || n, $1::text, $2::text::json, length($2::text), 1, at, at, at
       from (select n, now() - interval '30 days' as at from generate_series(1, $3::int) n) old`,
    [TYPE, JSON.stringify(payloadOf(0)), count],
  )
  await client.query('vacuum analyze outbox_event')
  await client.query('checkpoint')
}
