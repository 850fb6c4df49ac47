import { alternate, medianOf, onBacklog } from '../lib/measure.js'
import { compare } from '../lib/report.js'
import { buildUnobserved } from '../lib/unobserved.js'

export const title = 'what it costs to be watched, on the path of B1'
/** Small differences need more rounds than the others. */
const ROUNDS_PER_REPEAT = 3

export async function run(context) {
  const count = context.size(100_000, 20_000)
  const unobserved = buildUnobserved()
  const drain = (options) => () => {
    const [total, warm] = [count + count / 10, count / 10]
    const job = { role: 'drain', side: 'observed', total, warm, options }
    return onBacklog(context, 'ours', total, (url) => context.child({ ...job, url }))
  }
  const parts = {
    silent: drain({ watcher: 'nobody' }),
    unobserved: drain({ watcher: 'nobody', dist: unobserved.folder }),
    prometheus: drain({ watcher: 'prometheus' }),
    'otel-metrics': drain({ watcher: 'otel-metrics' }),
    tracing: drain({ watcher: 'tracing' }),
  }
  try {
    return rowsOf(count, await inChangingTurns(context, parts))
  } finally {
    unobserved.remove()
  }
}

/** Each round begins with another part, so that none always comes first. */
async function inChangingTurns(context, parts) {
  const names = Object.keys(parts)
  const results = Object.fromEntries(names.map((name) => [name, []]))
  for (let round = 0; round < context.repeat * ROUNDS_PER_REPEAT; round++) {
    const first = round % names.length
    const order = [...names.slice(first), ...names.slice(0, first)]
    const turn = Object.fromEntries(order.map((name) => [name, parts[name]]))
    const answers = await alternate({ ...context, repeat: 1 }, turn)
    for (const name of names) results[name].push(...answers[name])
  }
  return results
}

function rowsOf(count, results) {
  const row = (what, name, beside, atLeast) => {
    const cpu = { [name]: medianOf(results[name], 'cpuMicrosPerEvent') }
    cpu[beside] = medianOf(results[beside], 'cpuMicrosPerEvent')
    return compare(results, {
      what: `drain ${count / 1000}k, ${what}`,
      ours: name,
      peer: beside,
      paired: true,
      atLeast,
      details: { cpuMicrosPerEvent: cpu },
    })
  }
  return [
    row('silent logger and no metrics, vs a build that cannot tell', 'silent', 'unobserved', 0.98),
    row('metrics for Prometheus, vs none', 'prometheus', 'silent', 0.95),
    row('metrics for OpenTelemetry, vs none', 'otel-metrics', 'silent', 0.95),
    row('a span for each handler call, vs none', 'tracing', 'silent'),
  ]
}
