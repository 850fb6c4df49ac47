import { brokers } from '../lib/brokers.js'
import { inTurns, medianOf, onBacklog } from '../lib/measure.js'
import { perSecond } from '../lib/numbers.js'
import { ratioRow } from '../lib/report.js'

export const title = 'relay to a broker, beside its bare client'

/** The relay's own batch size comes first: that is the bar. The others show what it is worth. */
const BATCHES = [500, 10, 50, 100, 1_000]

/** Each broker in turn, with a server of its own: the others would take their share of the machine. */
export async function run(context) {
  const rows = []
  for (const name of Object.keys(brokers)) {
    const server = await started(context, name)
    if (!server) continue
    try {
      for (const batch of BATCHES) rows.push(await compare(context, name, server.url, batch))
    } finally {
      await server.stop()
    }
  }
  return rows
}

async function started(context, name) {
  try {
    return await brokers[name].start()
  } catch (error) {
    context.say(`${name} cannot be had: ${error.message}`)
    return undefined
  }
}

async function compare(context, broker, brokerUrl, batch) {
  const isBar = batch === BATCHES[0]
  const count = context.size(isBar ? 100_000 : 20_000, isBar ? 25_000 : 5_000)
  const job = { role: 'relay', broker, brokerUrl, batch, total: count + count / 5, warm: count / 5 }
  const results = await inTurns(context, {
    ours: () => onBacklog(context, 'ours', job.total, (url) => context.child({ ...job, url })),
    bare: () => context.child({ ...job, bare: true }),
  })
  const ours = medianOf(results.ours, 'rate')
  const peer = medianOf(results.bare, 'rate')
  const what = `${broker}: relay in batches of ${batch}, vs the bare client`
  const details = { batch, runs: results }
  return ratioRow({
    what,
    ours,
    peer,
    format: perSecond,
    ratio: ours / peer,
    atLeast: isBar ? 0.7 : undefined,
    details,
  })
}
