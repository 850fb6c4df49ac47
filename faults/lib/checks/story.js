import { groupBy } from './history.js'

/** Kinds of lines that can concern every event. */
const EVERYBODYS = new Set(['cut', 'server', 'fault', 'healed', 'drained'])
const OF_A_LIFE = new Set(['hit', 'problem', 'stopped', 'late'])
const OF_A_CHILD = new Set(['spawned', 'exited', 'froze', 'thawed'])

/**
 * Finds the story of a violation: every line that names the event or ends its transaction, and what befell the
 * processes involved, in order of time. Lines about many events are cut down to the one.
 */
export function storyTeller(history) {
  const byEvent = linesByEvent(history.lines)
  const rest = history.lines.filter(({ what }) => EVERYBODYS.has(what))
  const byLife = groupBy(
    history.lines.filter(({ what }) => OF_A_LIFE.has(what) || OF_A_CHILD.has(what)),
    ({ what, proc, child }) => (OF_A_CHILD.has(what) ? child : proc),
  )
  return ({ eventId, eventIds = [], procs = [] }) => {
    const ids = new Set(eventId === undefined ? eventIds : [eventId, ...eventIds])
    const own = [...ids].flatMap((id) => byEvent.get(id) ?? [])
    const involved = new Set([...own.map(({ proc }) => proc), ...procs])
    const lives = [...involved].flatMap((proc) => byLife.get(proc) ?? [])
    return [...new Set([...own, ...lives, ...rest])].sort((a, b) => a.at - b.at)
  }
}

function linesByEvent(lines) {
  const byEvent = new Map()
  const transactions = new Map()
  const runs = new Map()
  const calls = new Map()
  const add = (id, line) => byEvent.set(id, [...(byEvent.get(id) ?? []), line])
  for (const line of lines) {
    const { what, proc } = line
    if (what === 'published') {
      add(line.eventId, line)
      transactions.set(line.tx, [...(transactions.get(line.tx) ?? []), line.eventId])
    } else if (line.tx !== undefined) {
      for (const id of transactions.get(line.tx) ?? []) add(id, line)
    } else if (what === 'start') {
      runs.set(`${proc}\n${line.run}`, line.eventId)
      add(line.eventId, line)
    } else if (what === 'end' || what === 'aborted') {
      const id = runs.get(`${proc}\n${line.run}`)
      if (id !== undefined) add(id, line)
    } else if (what === 'settling') {
      const ids = line.settlements.map(([id]) => id)
      calls.set(`${proc}\n${line.n}`, ids)
      for (const settlement of line.settlements) add(settlement[0], { ...line, settlements: [settlement] })
    } else if (what === 'settled' || what === 'settle-failed') {
      for (const id of calls.get(`${proc}\n${line.n}`) ?? []) add(id, answerFor(line, id))
    } else if (what === 'born' || what === 'claimed') {
      for (const entry of line.events) {
        add(Array.isArray(entry) ? entry[0] : entry, { ...line, events: [entry] })
      }
    } else if (what === 'renewed') {
      for (const claim of line.claims) add(claim[0], { ...line, claims: [claim] })
    } else if (line.eventId !== undefined) add(line.eventId, line)
  }
  return byEvent
}

function answerFor(line, id) {
  return line.what === 'settled' ? { ...line, events: line.events.filter((eventId) => eventId === id) } : line
}

/** Formats the story with one line of text per line, which starts with the time since the first line. */
export function storyText({ invariant, eventId, text, story }) {
  const head = `${invariant}${eventId === undefined ? '' : ` ${eventId}`}: ${text}`
  const from = story[0]?.at ?? 0
  const width = Math.max(0, ...story.map(({ proc }) => String(proc).length))
  const told = story.map((line) => {
    const time = (line.at - from).toFixed(1).padStart(10)
    return `${time} ms  ${String(line.proc).padEnd(width)}  ${line.what}${detailsOf(line)}`
  })
  return [head, ...told].join('\n')
}

const TELL = {
  published: ({ tx, key, version, undone }) =>
    `in ${tx}${key == null ? '' : `, key ${key} version ${version}`}${undone ? ', undone by its savepoint' : ''}`,
  born: ({ events, token, leaseMs }) => `${idOf(events[0])} leased to ${token} for ${leaseMs} ms`,
  claimed: ({ events, token, leaseMs }) =>
    `${idOf(events[0])} by ${token} for ${leaseMs} ms, attempts ${attemptsOf(events[0])}`,
  renewed: ({ claims, leaseMs }) => `${claims[0]?.[1]} for ${leaseMs} ms`,
  settling: ({ n, settlements }) => `#${n} ${settlements[0]?.[2]} with ${settlements[0]?.[1]}`,
  settled: ({ n, events }) => `#${n} ${events.length > 0 ? 'counted' : 'refused, the lease was lost'}`,
  'settle-failed': ({ n }) => `#${n} without an answer`,
  start: ({ run, handler, eventId, attempt }) =>
    `run ${run} of ${handler} for ${eventId}, attempt ${attempt}`,
  end: ({ run, ok }) => `run ${run} ${ok ? 'ok' : 'failed'}`,
  aborted: ({ run }) => `run ${run}`,
  exited: ({ child, code, signal, meant }) =>
    `${child} ${signal ?? `code ${code}`}${meant ? '' : ', not meant'}`,
}

function idOf(entry) {
  return Array.isArray(entry) ? entry[0] : entry
}

function attemptsOf(entry) {
  return Array.isArray(entry) ? entry[1] : 0
}

/** Lines of other kinds show their short fields, which never contain a payload. */
function detailsOf(line) {
  const tell = TELL[line.what]
  if (tell) return ` ${tell(line)}`
  const { at, proc, what, ...others } = line
  const shown = Object.entries(others).filter(([, value]) => typeof value !== 'object')
  return shown.map(([name, value]) => ` ${name} ${String(value).slice(0, 200)}`).join(',')
}
