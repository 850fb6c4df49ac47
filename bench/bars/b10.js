import { brokers } from '../lib/brokers.js'
import { alternate, onBacklog } from '../lib/measure.js'
import { compare } from '../lib/report.js'

export const title = 'relay to a broker, beside its bare client'

/** Batch sizes. The first is the relay's default, which decides the bar. The other sizes run once, for comparison. */
const BATCHES = [500, 10, 50, 100, 1_000]
/** As it says when it starts. */
const VERSION = /(?:Redis version=|Valkey version=|Version: +|RabbitMQ )v?(\d+\.\d+\.\d+)/

/** Each broker in turn, with a server of its own: the others would take their share of the machine. */
export async function run(context) {
  const rows = []
  for (const name of Object.keys(brokers)) rows.push(...(await besideBare(context, name)))
  return rows
}

async function besideBare(context, name) {
  let server
  try {
    server = await brokers[name].start()
  } catch (error) {
    return [{ what: `${name}: not measured, it cannot be had here`, details: { why: error.message } }]
  }
  context.versions[name] = server.version ?? VERSION.exec(server.log)?.[1] ?? 'unknown'
  const rows = []
  try {
    for (const batch of context.size(BATCHES, BATCHES.slice(0, 1))) {
      rows.push(await measure(context, name, server.url, batch))
    }
  } finally {
    await server.stop()
  }
  return rows
}

async function measure(context, broker, brokerUrl, batch) {
  const isBar = batch === BATCHES[0]
  const count = context.size(isBar ? 60_000 : 20_000, 10_000)
  const job = { role: 'relay', broker, brokerUrl, batch, total: count + count / 5, warm: count / 5 }
  const sides = {
    ours: () => onBacklog(context, 'ours', job.total, (url) => context.child({ ...job, url })),
    'bare client': () => context.child({ ...job, bare: true }),
  }
  const results = await alternate(isBar ? context : { ...context, repeat: 1 }, sides, Object.keys(sides))
  return compare(results, {
    what: `${broker}: relay in batches of ${batch}, vs the bare client`,
    peer: 'bare client',
    ...(isBar ? { atLeast: 0.7 } : {}),
    details: { broker, batch },
  })
}
