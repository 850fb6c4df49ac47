import { onEmpty } from '../lib/measure.js'

export const title = 'idle cost'
const INTERVAL_MS = 1_000
const MAX_STATEMENTS = 2
const MAX_CPU = 10

/** Counted by the server, in its log, so that no statement escapes. */
export async function run(context) {
  const intervals = context.size(10, 4)
  const idleMs = intervals * INTERVAL_MS
  const options = { tuning: { pollIntervalMs: INTERVAL_MS } }
  const { statements, cpu } = await onEmpty(context, 'ours', async (url, { name }) => {
    await context.databases.query(`alter database ${name} set log_statement = 'all'`)
    const child = context.startChild({ role: 'idle', side: 'ours', url, settleMs: 2_500, idleMs, options })
    await child.said('idle')
    const log = watchLog(context.server, name)
    await child.said('over')
    const seen = log.end()
    return { statements: seen, cpu: (await child.result).cpuMillisPerSecond }
  })
  const each = statements.length / intervals
  return [
    {
      what: `idle, ${intervals} poll intervals: statements an interval`,
      ours: each.toFixed(1),
      must: `≤ ${MAX_STATEMENTS}`,
      holds: each <= MAX_STATEMENTS,
      details: { statements },
    },
    {
      what: `idle, polling every ${INTERVAL_MS / 1000} s: CPU time of the process`,
      ours: `${cpu.toFixed(1)} ms/s`,
      must: `≤ ${MAX_CPU} ms/s`,
      holds: cpu <= MAX_CPU,
      details: { cpuMillisPerSecond: cpu },
    },
  ]
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
