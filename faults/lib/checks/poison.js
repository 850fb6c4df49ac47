/** As often as this an event has to fail before it is called poison. */
const FAILURES = 3
/** The others may need this long while a poison event is around, and three leases in which a process may have died. */
const PATIENCE_MS = 3_000

/**
 * I14. While one event fails for ever, kills or blocks, those of other keys are done (unless another poison has their
 * key): what was committed long enough before the poison was through has succeeded by then. Poison is what `state.poison` names, otherwise what failed three
 * times and never succeeded. Not seen where its time was too short to tell.
 */
export function poisonStaysAlone(history) {
  const violations = []
  let seen = false
  const poisons = poisonOf(history)
  for (const poison of poisons) {
    const until = throughAt(history, poison)
    const graceMs = PATIENCE_MS + 3 * longestLease(history)
    for (const other of othersOf(history, poisons)) {
      if (other.committedAt < poison.since || other.committedAt + graceMs > until) continue
      seen = true
      if (other.doneAt <= until) continue
      const { eventId } = other
      violations.push({
        eventId,
        eventIds: [poison.eventId],
        text: `not done while ${poison.eventId} was poison`,
      })
    }
  }
  return { seen, violations }
}

function poisonOf(history) {
  const named = history.state.poison ?? []
  const ids = named.length > 0 ? named : [...history.business.keys()].filter((id) => isPoison(history, id))
  return ids.flatMap((eventId) => {
    const runs = history.runsOf(eventId)
    if (runs.length === 0) return []
    const key = history.business.get(eventId)?.key ?? null
    return [{ eventId, key, since: Math.min(...runs.map(({ startAt }) => startAt)) }]
  })
}

function isPoison(history, eventId) {
  const runs = history.runsOf(eventId)
  return runs.length >= FAILURES && runs.every(({ ok }) => ok !== true)
}

/** Its last outcome; without one it was poison to the end. */
function throughAt(history, { eventId }) {
  const final = (history.settlements.get(eventId) ?? []).filter(({ isFinal, settled }) => isFinal && settled)
  return final.at(-1)?.answeredAt ?? history.lines.at(-1)?.at ?? 0
}

function longestLease(history) {
  let longest = 0
  for (const { what, leaseMs } of history.lines) {
    if (what === 'claimed' || what === 'born') longest = Math.max(longest, leaseMs)
  }
  return longest
}

function othersOf(history, poisons) {
  const poisoned = new Set(
    poisons.flatMap(({ eventId, key }) => (key === null ? [eventId] : [eventId, `key ${key}`])),
  )
  const committed = new Map()
  for (const { eventId, at } of history.publications) committed.set(eventId, at)
  return [...history.business.values()].flatMap(({ eventId, key }) => {
    if (poisoned.has(eventId) || poisoned.has(`key ${key}`)) return []
    if (isPoison(history, eventId) || !committed.has(eventId)) return []
    const ends = history.runsOf(eventId).flatMap(({ ok, endAt }) => (ok === true ? [endAt] : []))
    return [{ eventId, committedAt: committed.get(eventId), doneAt: Math.min(Infinity, ...ends) }]
  })
}
