/** What a settlement says for good. */
const FINAL = new Set(['done', 'dead'])

/**
 * The lines of all journals in order of time, sorted into what the checks ask for. Nothing is judged here. What a life
 * did not live to write is taken as open: a run without an end lasts until its life is known to be over, a settlement
 * without an answer may or may not have been carried out.
 */
export function historyOf(journal, state) {
  const lines = journal.filter((line) => line && typeof line.what === 'string' && Number.isFinite(line.at))
  lines.sort((a, b) => a.at - b.at)
  const lives = livesOf(lines)
  const holds = holdsOf(lines)
  const runs = runsOf(lines, lives, holds)
  const runsByEvent = groupBy(runs, ({ eventId }) => eventId)
  const types = new Map(state.rows.map(({ eventId, eventType }) => [eventId, eventType]))
  return {
    lines,
    state,
    lives,
    holds,
    settlements: settlementsOf(lines),
    runs,
    runsOf: (eventId) => runsByEvent.get(eventId) ?? [],
    publications: publicationsOf(lines),
    rows: new Map(state.rows.map((row) => [row.eventId, row])),
    business: new Map(state.business.map((row) => [row.eventId, row])),
    /** Returns the handlers of the event's type, or none if the event is unknown. */
    handlersOf: (eventId) => state.handlers[types.get(eventId)] ?? [],
    isExactlyOnce: (handler) => state.exactlyOnce.includes(handler),
  }
}

export function groupBy(items, keyOf) {
  const groups = new Map()
  for (const item of items) {
    const key = keyOf(item)
    const group = groups.get(key)
    if (group) group.push(item)
    else groups.set(key, [item])
  }
  return groups
}

/** Returns one entry per life of a process. In the times `freezes`, `hits` and `late`, the process could not work. */
function livesOf(lines) {
  const lives = new Map()
  const lifeOf = (proc) => {
    if (!lives.has(proc))
      lives.set(proc, { proc, exit: null, stopped: null, freezes: [], hits: [], late: [] })
    return lives.get(proc)
  }
  for (const line of lines) {
    if (line.what === 'exited') lifeOf(line.child).exit = line
    else if (line.what === 'froze') lifeOf(line.child).freezes.push({ from: line.at, to: Infinity })
    else if (line.what === 'thawed') thaw(lifeOf(line.child), line.at)
    else if (line.proc === 'campaign') continue
    else if (line.what === 'stopped') lifeOf(line.proc).stopped = line
    else if (line.what === 'hit') lifeOf(line.proc).hits.push(line)
    else if (line.what === 'late') lifeOf(line.proc).late.push({ from: line.at - line.ms, to: line.at })
    else lifeOf(line.proc)
  }
  return lives
}

function thaw(life, at) {
  const last = life.freezes.at(-1)
  if (last && last.to === Infinity) last.to = at
}

/** Returns the time at which a life was certainly over, or infinity if its end was not recorded. */
export function endOf(lives, proc) {
  return lives.get(proc)?.exit?.at ?? Infinity
}

/**
 * Returns one entry per event of a claim or a birth. The database took the lease between `asked` and `at`, so it was certainly
 * in force from `at` until `until` and certainly over after `overBy`, each moved on by renewals.
 */
function holdsOf(lines) {
  const holds = []
  const open = new Map()
  for (const line of lines) {
    if (line.what === 'born' || line.what === 'claimed') {
      for (const entry of line.events) {
        const hold = holdOf(line, entry)
        holds.push(hold)
        open.set(claimKey(hold.eventId, hold.token), hold)
      }
    } else if (line.what === 'renewed') {
      for (const [eventId, token] of line.claims) renew(open.get(claimKey(eventId, plainToken(token))), line)
    }
  }
  return groupBy(holds, ({ eventId }) => eventId)
}

function holdOf(line, entry) {
  const [eventId, attempts] = Array.isArray(entry) ? entry : [entry, 0]
  const { proc, asked, at, leaseMs } = line
  const token = plainToken(line.token)
  const until = asked + leaseMs
  return { eventId, attempts, token, proc, asked, at, leaseMs, until, overBy: at + leaseMs, renewals: [] }
}

function renew(hold, line) {
  if (!hold) return
  hold.renewals.push({ asked: line.asked, at: line.at, leaseMs: line.leaseMs, overBy: hold.overBy })
  hold.until = Math.max(hold.until, line.asked + line.leaseMs)
  hold.overBy = Math.max(hold.overBy, line.at + line.leaseMs)
}

function claimKey(eventId, token) {
  return `${eventId}\n${token}`
}

/** A suspect's row carries the token of its claim with an ending; they are one lease. */
function plainToken(token) {
  return String(token).replace(/:(solo|some)$/, '')
}

/** `settled`: true or false as the store answered, null when the answer is not known. */
function settlementsOf(lines) {
  const settlements = []
  const pending = new Map()
  for (const line of lines) {
    const call = `${line.proc}\n${line.n}`
    if (line.what === 'settling') {
      const sent = line.settlements.map(([eventId, token, outcome]) => ({
        ...{ eventId, token: plainToken(token), outcome, proc: line.proc, sentAt: line.at },
        ...{ answeredAt: Infinity, settled: null, isFinal: FINAL.has(outcome) },
      }))
      settlements.push(...sent)
      pending.set(call, sent)
    } else if (line.what === 'settled') answer(pending.get(call), line)
  }
  return groupBy(settlements, ({ eventId }) => eventId)
}

function answer(sent, line) {
  const settled = new Set(line.events)
  for (const settlement of sent ?? []) {
    settlement.answeredAt = line.at
    settlement.settled = settled.has(settlement.eventId)
  }
}

/** `ok` is true, false, or null for a run whose end was not recorded. Such a run lasts as long as its life. */
function runsOf(lines, lives, holds) {
  const runs = []
  const open = new Map()
  for (const line of lines) {
    const id = `${line.proc}\n${line.run}`
    if (line.what === 'start') {
      const run = {
        ...{ proc: line.proc, run: line.run, eventId: line.eventId, handler: line.handler },
        ...{ attempt: line.attempt, payloadOk: line.payloadOk, startAt: line.at },
        ...{ endAt: endOf(lives, line.proc), ok: null, abortedAt: Infinity },
      }
      run.hold = lastHold(holds.get(line.eventId), run)
      open.set(id, run)
      runs.push(run)
    } else if (line.what === 'end' && open.has(id)) {
      Object.assign(open.get(id), { endAt: line.at, ok: line.ok })
    } else if (line.what === 'aborted' && open.has(id)) {
      open.get(id).abortedAt = Math.min(open.get(id).abortedAt, line.at)
    }
  }
  return runs
}

/** The lease under which a run began; null when its life had none. */
function lastHold(holds = [], { proc, startAt }) {
  return holds.findLast((hold) => hold.proc === proc && hold.at <= startAt) ?? null
}

/** `fate`: what the producer was told of the transaction; null when it did not live to hear. */
function publicationsOf(lines) {
  const fates = new Map()
  const publications = []
  for (const line of lines) {
    if (line.what === 'published') publications.push(line)
    else if (['committed', 'rolled-back', 'unknown'].includes(line.what)) fates.set(line.tx, line.what)
  }
  return publications.map(({ tx, eventId, at, proc, undone }) => ({
    ...{ tx, eventId, at, proc },
    undone: undone === true,
    fate: fates.get(tx) ?? null,
  }))
}
