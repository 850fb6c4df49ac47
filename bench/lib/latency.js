import { onEmpty } from './measure.js'
import { percentile } from './numbers.js'

/** Commit → handler, publisher and consumer in one process. */
export function sameProcess(context, side, { rate, count, warm, options }) {
  const job = {
    role: 'paced',
    side,
    connections: 16,
    rate,
    warm,
    count,
    publish: true,
    handle: true,
    options,
  }
  return onEmpty(context, side, async (url) => {
    const child = context.startChild({ ...job, url })
    await child.said('ready')
    child.say('go')
    const { commits, handled, achieved } = await child.result
    return summary(commits, handled, achieved)
  })
}

/** Commit in a process that only publishes → handler in another. */
export function twoProcesses(context, side, { rate, count, warm, options }) {
  const job = { role: 'paced', side, connections: 4, rate, warm, count, options }
  return onEmpty(context, side, async (url) => {
    const consumer = context.startChild({ ...job, url, handle: true })
    await consumer.said('ready')
    const publisher = context.startChild({ ...job, url, publish: true })
    await publisher.said('ready')
    consumer.say('go')
    publisher.say('go')
    const { handled } = await Promise.race([consumer.result, publisher.result.then(() => consumer.result)])
    publisher.say('stop')
    const { commits, achieved } = await publisher.result
    return summary(commits, handled, achieved)
  })
}

function summary(commits, handled, achieved) {
  if (commits.includes(0) || handled.includes(0))
    throw new Error('an event without a commit time or without a handler')
  const latencies = commits.map((commit, id) => handled[id] - commit)
  const at = (share) => percentile(latencies, share)
  return { p50: at(0.5), p99: at(0.99), least: at(0), most: at(1), achieved }
}
