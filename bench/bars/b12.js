import { onEmpty } from '../lib/measure.js'
import { limit } from '../lib/report.js'

export const title = 'idle cost'
const INTERVAL_MS = 1_000
const MAX_STATEMENTS = 2
const MAX_CPU = 10

/** Nobody does anything here: the repetitions run side by side, each on a database of its own. */
export async function run(context) {
  const intervals = context.size(10, 4)
  const runs = await Promise.all(Array.from({ length: context.repeat }, () => idle(context, intervals)))
  return [
    limit(runs, {
      what: `idle, ${intervals} poll intervals: statements an interval`,
      field: 'statements',
      format: (value) => value.toFixed(1),
      atMost: MAX_STATEMENTS,
    }),
    limit(runs, {
      what: `idle, polling every ${INTERVAL_MS / 1000} s: CPU time of the process`,
      field: 'cpu',
      format: (value) => `${value.toFixed(1)} ms/s`,
      atMost: MAX_CPU,
    }),
  ]
}

/** Counted by the server, in its log, so that no statement escapes. */
function idle(context, intervals) {
  const options = { tuning: { pollIntervalMs: INTERVAL_MS } }
  const job = { role: 'idle', side: 'ours', settleMs: 2_500, idleMs: intervals * INTERVAL_MS, options }
  return onEmpty(context, 'ours', async (url, { name }) => {
    await context.databases.query(`alter database ${name} set log_statement = 'all'`)
    const child = context.startChild({ ...job, url })
    await child.said('idle')
    const log = watchLog(context.server, name)
    await child.said('over')
    const seen = log.end()
    const { cpuMillisPerSecond } = await child.result
    return { statements: seen.length / intervals, cpu: cpuMillisPerSecond, seen }
  })
}

/** The statements that the server logs for one database from now on. Its log keeps the last lines only: read often. */
function watchLog(server, database) {
  const seen = new Map()
  const read = () => {
    for (const entry of server.log.split(/\n(?=~)/)) {
      const [, name, session, number, text] = /^~(.*?)~(.*?)~(\d+)~ (.*)/s.exec(entry) ?? []
      if (name === database && /LOG: +(statement|execute)/.test(text)) seen.set(`${session} ${number}`, text)
    }
  }
  read()
  const before = new Set(seen.keys())
  const timer = setInterval(read, 100)
  return {
    end() {
      clearInterval(timer)
      read()
      return [...seen]
        .filter(([key]) => !before.has(key))
        .map(([, text]) => text.replace(/\s+/g, ' ').slice(0, 200))
    },
  }
}
