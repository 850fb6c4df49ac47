import { groupBy } from './history.js'

/**
 * I1. Every business row has its event, and that is DONE or DEAD with a reason. DONE counts only with a successful run
 * of each handler from before the outcome was sent; an exactly-once handler may show its effect instead, since a crash
 * between its commit and its last line leaves nothing else. What a producer was told is committed is there.
 */
export function everythingIsHandled(history) {
  const { business, publications } = history
  const successes = groupBy(
    history.runs.filter(({ ok }) => ok === true),
    ({ eventId, handler }) => `${eventId}\n${handler}`,
  )
  const violations = [...business.keys()].flatMap((eventId) => unhandled(history, eventId, successes))
  for (const { eventId, tx, fate, undone } of publications) {
    if (fate === 'committed' && !undone && !business.has(eventId)) {
      violations.push({ eventId, text: `${tx} was reported as committed and has left nothing` })
    }
  }
  return { seen: business.size > 0, violations }
}

function unhandled(history, eventId, successes) {
  const row = history.rows.get(eventId)
  if (!row) return history.state.pruned ? [] : [{ eventId, text: 'committed, and its row is missing' }]
  if (row.status === 'DEAD' && !row.lastError) return [{ eventId, text: 'DEAD without a reason' }]
  if (row.status === 'DEAD') {
    const isUnroutable =
      row.lastError.startsWith('UnroutableEventError') && history.handlersOf(eventId).length > 0
    return isUnroutable ? [{ eventId, text: 'DEAD as unroutable, and its consumers have registered' }] : []
  }
  if (row.status !== 'DONE') return [{ eventId, text: `left ${row.status} in the end` }]
  const done = history.settlements.get(eventId)?.find(({ outcome, settled }) => outcome === 'done' && settled)
  return history.handlersOf(eventId).flatMap((handler) => {
    const runs = successes.get(`${eventId}\n${handler}`) ?? []
    if (runs.length === 0) {
      if (history.isExactlyOnce(handler) && hasEffect(history, handler, eventId)) return []
      return [{ eventId, text: `DONE without a successful run of ${handler}` }]
    }
    if (!done || runs.some(({ endAt }) => endAt <= done.sentAt)) return []
    return [{ eventId, text: `settled as done before ${handler} had succeeded` }]
  })
}

function hasEffect({ state }, handler, eventId) {
  return state.effects.some(
    (effect) => effect.handler === handler && effect.eventId === eventId && effect.count > 0,
  )
}

/**
 * I2. What is not in `business` was never committed: it has no run, no row and no effect. `business` decides, so an
 * unknown commit needs no excuse; but a transaction that was reported as rolled back must not be there.
 */
export function nothingUncommittedIsHandled(history) {
  const { business, publications, rows, runs, state } = history
  const violations = []
  for (const [eventId, ran] of groupBy(runs, (run) => run.eventId)) {
    if (!business.has(eventId)) {
      violations.push({
        eventId,
        text: `never committed, and run by ${ran.map(({ proc }) => proc).join(', ')}`,
      })
    }
  }
  for (const eventId of rows.keys()) {
    if (!business.has(eventId))
      violations.push({ eventId, text: 'never committed, and there is a row of it' })
  }
  for (const { eventId, handler } of state.effects) {
    if (!business.has(eventId)) {
      violations.push({ eventId, text: `never committed, and there is an effect of ${handler}` })
    }
  }
  for (const { eventId, tx, fate, undone } of publications) {
    if (!business.has(eventId) || (fate !== 'rolled-back' && !undone)) continue
    const what = undone ? 'undone by its savepoint' : `in ${tx}, which was reported as rolled back`
    violations.push({ eventId, text: `${what}, and committed all the same` })
  }
  const seen = publications.some(({ eventId }) => !business.has(eventId)) || violations.length > 0
  return { seen, violations }
}

/** I9. One effect of each exactly-once handler for each event it is for; at most one where the event is DEAD. */
export function effectsHappenOnce(history) {
  const { business, rows, state } = history
  const counts = new Map()
  for (const { handler, eventId, count } of state.effects) {
    const key = `${handler}\n${eventId}`
    counts.set(key, (counts.get(key) ?? 0) + count)
  }
  const violations = []
  let seen = false
  for (const eventId of business.keys()) {
    const isDead = rows.get(eventId)?.status === 'DEAD'
    for (const handler of history.handlersOf(eventId).filter(history.isExactlyOnce)) {
      seen = true
      const count = counts.get(`${handler}\n${eventId}`) ?? 0
      if (count === 1 || (count === 0 && isDead)) continue
      violations.push({ eventId, text: `${count} effects of ${handler} instead of one` })
    }
  }
  return { seen, violations }
}

/** I10. What a handler gets equals what was published. No excuse. */
export function payloadsComeBack({ runs }) {
  const broken = runs.filter(({ payloadOk }) => payloadOk !== true)
  const violations = broken.map(({ eventId, proc, handler }) => ({
    eventId,
    text: `${handler} got another payload in ${proc} than was published`,
  }))
  return { seen: runs.length > 0, violations }
}
