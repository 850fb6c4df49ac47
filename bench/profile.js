// npm run bench -- profile: where our own time and memory go, on three paths.
import fs from 'node:fs'
import path from 'node:path'
import { onBacklog, onEmpty } from './lib/measure.js'
import { runStudy } from './lib/study.js'
import { render } from './profile/report.js'
import { cpuOfTree } from './profile/server-cpu.js'
import { cpuCosts, heapCosts, summarise } from './profile/summary.js'

const PROFILES = path.join(import.meta.dirname, 'results')
const CONNECTIONS = 16
const KEYS = 10_000

const PATHS = {
  drain: {
    title: 'the drain of a backlog, rows deleted',
    size: ({ size }) => ({ count: size(100_000, 20_000), warm: size(20_000, 5_000) }),
    run: (session, job) => backlog(session, job),
  },
  hot: {
    title: `the hot path: transactions with a publish, ${CONNECTIONS} connections, handled in the process`,
    size: ({ size }) => ({ count: size(20_000, 3_000), warm: size(2_000, 300) }),
    run: (session, job) =>
      onEmpty(session, 'ours', (url) =>
        watched(session, { ...job, plays: 'load', url, connections: CONNECTIONS, handle: true }),
      ),
  },
  ordered: {
    title: `the ordered path: a backlog of ${KEYS.toLocaleString('en-US')} keys, in order`,
    size: ({ size }) => ({ count: size(100_000, 20_000), warm: size(20_000, 5_000) }),
    run: (session, job) => backlog(session, job, { keys: KEYS }),
  },
}

export function main(argv) {
  return runStudy({ name: 'profile', argv, parts: Object.keys(PATHS), measure, render })
}

async function measure(session, { only }, progress) {
  fs.mkdirSync(PROFILES, { recursive: true })
  const paths = []
  for (const id of only) {
    progress.bar = `profile ${id}`
    paths.push(await profilePath(session, id))
  }
  return { paths }
}

/** Two runs: counting allocations costs time, which must not be in the times. */
async function profilePath(session, id) {
  const { title, size, run } = PATHS[id]
  const { count, warm } = size(session)
  const sampled = (kind) => {
    session.say(kind)
    const file = path.join(PROFILES, `${id}.${kind}profile`)
    return run(session, { count, warm, kind, file }).then((result) => ({ result, profile: readJson(file) }))
  }
  const cpu = await sampled('cpu')
  const heap = await sampled('heap')
  return {
    id,
    title,
    events: count,
    rate: cpu.result.rate,
    processMicrosPerEvent: cpu.result.cpuMicrosPerEvent,
    serverMicrosPerEvent: cpu.result.serverMicrosPerEvent,
    cpu: summarise(cpuCosts(cpu.profile), count),
    heap: summarise(heapCosts(heap.profile), count),
  }
}

function backlog(session, { count, warm, ...job }, shape) {
  const total = count + warm
  const play = (url) => watched(session, { ...job, plays: 'drain', url, total, warm, count })
  return onBacklog(session, 'ours', total, play, shape)
}

/** The server's share is of the whole run, start and warm-up as well: so it is divided by all events. */
async function watched(session, job) {
  const before = cpuOfTree(session.server.pid)
  const result = await session.child({ role: 'profiled', side: 'ours', ...job })
  const used = before === undefined ? undefined : cpuOfTree(session.server.pid) - before
  return { ...result, serverMicrosPerEvent: used === undefined ? undefined : used / (job.count + job.warm) }
}

const readJson = (file) => JSON.parse(fs.readFileSync(file, 'utf8'))
