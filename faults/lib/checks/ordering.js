import { groupBy } from './history.js'

/**
 * I3. For each key and handler the first starts follow `version`, which the producers took from a locked row, and no
 * version is passed over. The next one starts only when the one before it is through: it has succeeded, or its death
 * was being written. Excused: a version that is DEAD may never have started, since a process can die before that; and
 * an exactly-once handler killed right after its commit leaves no end.
 */
export function keysAreInOrder(history) {
  const firsts = firstStarts(history.runs)
  const keyed = [...history.business.values()].filter(({ key }) => key !== null && key !== undefined)
  const violations = []
  let seen = false
  for (const events of groupBy(keyed, ({ key }) => key).values()) {
    events.sort((a, b) => a.version - b.version)
    const handlers = new Set(events.flatMap(({ eventId }) => history.handlersOf(eventId)))
    for (const handler of handlers) {
      const line = events.filter(({ eventId }) => history.handlersOf(eventId).includes(handler))
      if (line.length > 1) seen = true
      violations.push(...disorder(history, handler, line, firsts))
    }
  }
  return { seen, violations }
}

function firstStarts(runs) {
  const firsts = new Map()
  for (const run of runs) {
    const key = `${run.eventId}\n${run.handler}`
    const known = firsts.get(key)
    if (!known || run.startAt < known) firsts.set(key, run.startAt)
  }
  return firsts
}

/** Each event against the one before it that was started: enough, since what is sorted pair by pair is sorted. */
function disorder(history, handler, events, firsts) {
  const violations = []
  let before = null
  let unstarted = null
  for (const { eventId, key, version } of events) {
    const startAt = firsts.get(`${eventId}\n${handler}`)
    if (startAt === undefined) {
      if (history.rows.get(eventId)?.status !== 'DEAD') unstarted ??= { eventId, version }
      continue
    }
    const complain = (other, text) =>
      violations.push({
        eventId,
        eventIds: [other],
        text: `${handler}, key ${key}: version ${version} ${text}`,
      })
    if (unstarted) complain(unstarted.eventId, `started, and version ${unstarted.version} never did`)
    if (before && startAt < before.startAt) {
      complain(before.eventId, `started before version ${before.version}`)
    } else if (before && startAt < throughAt(history, before.eventId)) {
      complain(before.eventId, `started while version ${before.version} was not through`)
    }
    before = { eventId, version, startAt }
    unstarted = null
  }
  return violations
}

/** The first moment at which its key may have moved on; 0 when the journal cannot say. */
function throughAt(history, eventId) {
  const died = (history.settlements.get(eventId) ?? []).find(({ outcome }) => outcome === 'dead')
  const runs = groupBy(
    history.runsOf(eventId).filter(({ ok }) => ok === true),
    ({ handler }) => handler,
  )
  let through = 0
  for (const handler of history.handlersOf(eventId)) {
    const ends = (runs.get(handler) ?? []).map(({ endAt }) => endAt)
    if (ends.length === 0 && history.isExactlyOnce(handler)) continue
    through = Math.max(through, ends.length === 0 ? Infinity : Math.min(...ends))
  }
  return Math.min(through, died?.sentAt ?? Infinity)
}
