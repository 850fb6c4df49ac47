// Every measured process is a child of its own, so that both sides start equal and one leaves nothing to the other.
import { fork } from 'node:child_process'
import path from 'node:path'

const ENTRY = path.join(import.meta.dirname, 'child.js')
const PROFILES = path.join(path.dirname(import.meta.dirname), 'results')
const LIMIT_MS = 180_000
const NEWLINE = 10
const running = new Set()

/** Runs a job to its end and answers its result. */
export function runChild(job) {
  return startChild(job).result
}

/**
 * `result` resolves with what the role returned, `said(name)` when the child said `name`; `say(name)` talks to it.
 * A child that takes more than its `limitMs` (three minutes) is ended, and its result rejects. `flags` are Node's.
 */
export function startChild(job) {
  const profiling = job.profile
    ? [
        '--cpu-prof',
        '--cpu-prof-interval=200',
        `--cpu-prof-dir=${PROFILES}`,
        `--cpu-prof-name=${job.profile}.cpuprofile`,
      ]
    : []
  const child = fork(ENTRY, [], {
    execArgv: [...profiling, ...(job.flags ?? [])],
    env: { ...process.env, NO_LOG_SUCCESS: '1' },
    stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
    serialization: 'advanced',
  })
  running.add(child)
  // What it prints is its log: read to the end and thrown away, as a collector of logs would take it.
  let logLines = 0
  child.stdout.on('data', (chunk) => {
    for (const byte of chunk) if (byte === NEWLINE) logLines++
  })
  const heard = new Map()
  const topic = (name) => {
    if (!heard.has(name)) heard.set(name, Promise.withResolvers())
    return heard.get(name)
  }
  const outcome = Promise.withResolvers()
  const fail = (reason) => {
    const error = new Error(`${job.side ?? ''} ${job.role}: ${reason}`)
    outcome.reject(error)
    for (const waiting of heard.values()) waiting.reject(error)
  }
  let value
  const { limitMs = LIMIT_MS } = job
  const watchdog = setTimeout(() => {
    fail(`not through after ${Math.round(limitMs / 60_000)} minutes`)
    child.kill('SIGKILL')
  }, limitMs)
  child.on('message', (message) => {
    if (message.result !== undefined) value = message.result
    else if (message.error) fail(message.error)
    else if (message.say) topic(message.say).resolve()
  })
  child.on('error', (error) => {
    clearTimeout(watchdog)
    running.delete(child)
    fail(error.message)
  })
  child.on('close', (code, signal) => {
    clearTimeout(watchdog)
    running.delete(child)
    if (value === undefined) fail(`ended early (${signal ?? code})`)
    else outcome.resolve(logLines > 0 ? { ...value, logLines } : value)
  })
  outcome.promise.catch(() => {})
  child.send({ job })
  const said = (name) => {
    const { promise } = topic(name)
    promise.catch(() => {})
    return Promise.race([promise, outcome.promise.then(() => promise)])
  }
  return { result: outcome.promise, said, say: (name) => child.connected && child.send({ say: name }) }
}

export function endChildren() {
  for (const child of running) child.kill('SIGKILL')
}
