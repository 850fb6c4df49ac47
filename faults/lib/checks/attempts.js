/** So many deaths may go uncharged: the first one always does, since nobody knows yet which event it was. */
const UNCHARGED = 6

/**
 * I7. From claim to claim the attempts never fall, as far as their order is certain. What is known to be poison ends
 * DEAD, and no event ends many processes without being charged for it. Nobody dies of a neighbour: an event that is
 * DEAD has failed in a run of its own, was under way in a death where nothing else is known to kill, or has no handler.
 */
export function attemptsOnlyGrow(history) {
  const events = [...new Set([...history.holds.keys(), ...history.rows.keys()])]
  const found = events.flatMap((eventId) => [
    ...fallen(history, eventId),
    ...spared(history, eventId),
    ...uncharged(history, eventId),
    ...deadOfANeighbour(history, eventId),
  ])
  const seen = [...history.holds.values()].some((holds) => holds.length > 1)
  return { seen: seen || found.length > 0 || hasDead(history), violations: found }
}

function hasDead(history) {
  return [...history.rows.values()].some(
    ({ eventId, status }) => status === 'DEAD' && history.handlersOf(eventId).length > 0,
  )
}

function fallen(history, eventId) {
  const holds = history.holds.get(eventId) ?? []
  for (const hold of holds) {
    const higher = holds.find((other) => other.at < hold.asked && other.attempts > hold.attempts)
    if (higher) return [{ eventId, text: `attempts fell from ${higher.attempts} to ${hold.attempts}` }]
  }
  return []
}

function isPoison({ state }, eventId) {
  return state.poison?.includes(eventId) ?? false
}

function spared(history, eventId) {
  const status = history.rows.get(eventId)?.status
  if (!isPoison(history, eventId) || status === undefined || status === 'DEAD') return []
  return [{ eventId, text: `poison, and ${status} in the end instead of DEAD` }]
}

/** The lives that were killed while a handler of the event was under way. */
function deathsWith(history, eventId) {
  const brokenOff = history.runsOf(eventId).filter(({ ok }) => ok === null)
  return new Set(brokenOff.map(({ proc }) => proc).filter((proc) => history.lives.get(proc)?.exit?.signal))
    .size
}

function uncharged(history, eventId) {
  const deaths = deathsWith(history, eventId)
  const claimed = (history.holds.get(eventId) ?? []).map(({ attempts }) => attempts)
  const attempts = Math.max(0, history.rows.get(eventId)?.attempts ?? 0, ...claimed)
  if (deaths - attempts < UNCHARGED) return []
  return [{ eventId, text: `${deaths} processes died with it, and it was charged ${attempts} times` }]
}

function deadOfANeighbour(history, eventId) {
  if (history.rows.get(eventId)?.status !== 'DEAD' || history.handlersOf(eventId).length === 0) return []
  const runs = history.runsOf(eventId)
  if (runs.some(({ ok, abortedAt }) => ok === false || abortedAt < Infinity)) return []
  const deaths = deathsWith(history, eventId)
  if (isPoison(history, eventId) && deaths > 0) return []
  if (!history.state.poison?.length && deaths > 0) return []
  return [{ eventId, text: `DEAD, and no run of it ever failed; it was under way in ${deaths} deaths` }]
}
