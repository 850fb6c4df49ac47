import { groupBy } from './history.js'

/**
 * I4. Runs of one (event, handler), and those of one ordering key, never overlap in one life. In different lives they
 * do not while the first one's lease is known to hold. It is known until `asked + leaseMs` of the last line that took or
 * renewed it, unless the life is over, and its runs with it, or has sent a settlement with that token. A frozen or
 * blocked life is excused by that alone: its lease runs out. No run begins without a lease, or when it is certainly over.
 */
export function runsDoNotOverlap(history) {
  const { business, runs } = history
  const same = groupBy(runs, ({ eventId, handler }) => `${eventId}\n${handler}`)
  const keyed = runs.filter(({ eventId }) => business.get(eventId)?.key != null)
  const ofKey = groupBy(keyed, ({ eventId }) => business.get(eventId).key)
  // The handlers of one event run side by side.
  const others = [...overlaps(ofKey)].filter(([first, second]) => first.eventId !== second.eventId)
  const pairs = [...overlaps(same), ...others]
  const violations = new Map()
  for (const [first, second] of pairs) {
    const text = overlapText(history, first, second)
    if (!text) continue
    const { eventId, proc } = second
    violations.set(`${first.proc}\n${first.run}\n${proc}\n${second.run}`, {
      ...{ eventId, eventIds: [first.eventId], text },
    })
  }
  const unleased = runs.filter(({ hold }) => hold === null)
  for (const { eventId, proc, handler, run } of unleased) {
    violations.set(`${proc}\n${run}`, { eventId, text: `${proc} ran ${handler} without a lease` })
  }
  for (const handling of runs) {
    const overMs = handling.hold ? handling.startAt - overBy(handling.hold, handling.startAt) : 0
    if (overMs <= START_MS) continue
    const { eventId, proc, handler, run } = handling
    const text = `${proc} began ${handler} when its lease was over for ${overMs.toFixed(0)} ms`
    violations.set(`${proc}\n${run}`, { eventId, text })
  }
  return { seen: runs.length > 0, violations: [...violations.values()] }
}

/** Between its last look at the lease and the first line of the handler a process may have to wait for a processor. */
const START_MS = 300

/** When a lease that nobody renewed after that time was certainly over. */
function overBy({ at, leaseMs, renewals }, time) {
  const asked = renewals.filter((renewal) => renewal.asked <= time)
  return Math.max(at + leaseMs, ...asked.map((renewal) => renewal.at + renewal.leaseMs))
}

/** Pairs of runs of which the second started while the first was under way. */
function* overlaps(groups) {
  for (const group of groups.values()) {
    if (group.length < 2) continue
    group.sort((a, b) => a.startAt - b.startAt)
    for (let at = 1; at < group.length; at++) {
      for (const earlier of group.slice(0, at))
        if (earlier.endAt > group[at].startAt) yield [earlier, group[at]]
    }
  }
}

function overlapText(history, first, second) {
  const whose = first.eventId === second.eventId ? 'the event' : `its key (${first.eventId})`
  if (first.proc === second.proc) {
    return `${second.proc} ran ${second.handler} beside its own run ${first.run} of ${whose}`
  }
  const leftMs = leaseLeft(history, first, second.startAt)
  if (leftMs <= 0) return null
  return `${second.proc} ran ${second.handler} while ${first.proc} ran it for ${whose}, leased for another ${leftMs.toFixed(0)} ms`
}

/** How long the lease of a run is known to go on at that time; 0 when it is not known to. */
function leaseLeft(history, { hold, proc, eventId }, at) {
  if (!hold) return 0
  const sent = (history.settlements.get(eventId) ?? []).some(
    (settlement) => settlement.proc === proc && settlement.token === hold.token && settlement.sentAt <= at,
  )
  return sent ? 0 : hold.until - at
}

/**
 * I6. A settlement or a renewal counts only with the current lease. `settled` with a token that the life never got, or
 * after another claim of the event was answered that had been asked for later than ours was, is a violation; so is a
 * second final outcome, and a renewal asked for when the lease was certainly over. What happened at the same time is
 * given the benefit of the doubt.
 */
export function onlyTheOwnerSettles(history) {
  const violations = []
  for (const [eventId, settlements] of history.settlements) {
    const holds = history.holds.get(eventId) ?? []
    const counted = settlements.filter(({ settled }) => settled === true)
    for (const settlement of counted) {
      const text = staleText(settlement, holds)
      if (text) violations.push({ eventId, text })
    }
    const final = counted.filter(({ isFinal }) => isFinal)
    if (final.length > 1) {
      const all = final.map(({ outcome, proc }) => `${outcome} by ${proc}`).join(', ')
      violations.push({ eventId, text: `several final outcomes were written: ${all}` })
    }
  }
  for (const hold of [...history.holds.values()].flat()) {
    const late = hold.renewals.find(({ asked, overBy }) => asked > overBy)
    if (!late) continue
    const overMs = (late.asked - late.overBy).toFixed(0)
    violations.push({
      eventId: hold.eventId,
      text: `${hold.proc} renewed a lease that was over for ${overMs} ms`,
    })
  }
  return { seen: history.settlements.size > 0, violations }
}

function staleText({ token, proc, outcome, sentAt }, holds) {
  const own = holds.find((hold) => hold.token === token && hold.proc === proc)
  if (!own) return `${proc} settled it as ${outcome} with a token it never got`
  const newer = holds.find((hold) => hold.token !== token && hold.asked > own.at && hold.at < sentAt)
  return newer ? `${proc} settled it as ${outcome}, and ${newer.proc} had claimed it meanwhile` : null
}

/** I8. No claim that was asked for after a final outcome was confirmed brings the event. No excuse. */
export function finalIsFinal(history) {
  const violations = []
  let seen = false
  for (const [eventId, settlements] of history.settlements) {
    const final = settlements.filter((settlement) => settlement.isFinal && settlement.settled === true)
    if (final.length === 0) continue
    seen = true
    const finalAt = Math.min(...final.map(({ answeredAt }) => answeredAt))
    for (const hold of history.holds.get(eventId) ?? []) {
      if (hold.asked <= finalAt) continue
      violations.push({ eventId, text: `${hold.proc} claimed it after it was ${final[0].outcome}` })
    }
  }
  return { seen, violations }
}
