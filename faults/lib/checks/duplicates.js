import { groupBy } from './history.js'

/**
 * I5. A run after another one that succeeded is a duplicate. It is excused by what kept the first one's outcome from
 * being written or from counting: the death of its process, a settlement that failed or got no answer, an outcome that
 * had been sent before all handlers were through (a drain timeout, a handler's timeout), or a lease lost by a process
 * that was frozen, blocked, cut off or starved. A lease lost in the best of health is no excuse, and neither is a
 * sibling's failure: a handler that succeeded is not called again.
 */
export function duplicatesHaveReasons(history) {
  const violations = []
  let duplicates = 0
  for (const runs of groupBy(history.runs, ({ eventId, handler }) => `${eventId}\n${handler}`).values()) {
    runs.sort((a, b) => a.startAt - b.startAt)
    for (let at = 1; at < runs.length; at++) {
      const successes = runs.slice(0, at).filter(({ ok }) => ok === true)
      if (successes.length > 0) duplicates++
      const text = successes.map((first) => unexcused(history, first, runs[at])).find(Boolean)
      if (text) violations.push({ eventId: runs[at].eventId, text, procs: [runs[at].proc] })
    }
  }
  return { seen: duplicates > 0, violations, duplicates }
}

function unexcused(history, first, second) {
  if (excuseOf(history, first, second)) return null
  const { handler, proc } = second
  return `${proc} ran ${handler} again without a reason; ${first.proc} had done it`
}

/** In words; null when there is none. */
function excuseOf(history, first, second) {
  const { hold, proc, eventId } = first
  if ((history.lives.get(proc)?.exit?.at ?? Infinity) <= second.startAt) {
    if (!wasWritten(history, first)) return 'its process died'
  }
  if (!hold) return null
  const sent = (history.settlements.get(eventId) ?? []).filter(
    (settlement) =>
      settlement.proc === proc && settlement.token === hold.token && settlement.sentAt <= second.startAt,
  )
  if (sent.some((settlement) => settlement.sentAt < first.endAt))
    return 'the outcome had been sent before the handler ended'
  if (sent.some(({ settled }) => settled === true)) return null
  if (sent.some((settlement) => settlement.settled === null || settlement.answeredAt > second.startAt)) {
    return 'its settlement failed or was not answered'
  }
  if (sent.some((settlement) => settlement.sentAt < hold.until && settlement.answeredAt >= hold.until)) {
    return 'its settlement was held up until the lease was over'
  }
  return hindrance(history, hold, second.startAt)
}

function wasWritten(history, { hold, proc, eventId }) {
  const settlements = history.settlements.get(eventId) ?? []
  return settlements.some(
    (settlement) =>
      settlement.proc === proc && settlement.token === hold?.token && settlement.settled === true,
  )
}

/** What a strike can do to a process that lives on; nothing else that is hit keeps it from its duties. */
const BLOCKS = new Set(['block', 'freeze', undefined])
const CUT_OFF = new Set(['cut', 'server'])
/** So long a connection that went silent may stay unnoticed. */
const CUT_LINGERS_MS = 15_000
/** A lease is renewed three times in its life; losing less than a third of it costs nobody the lease. */
const STARVED = 3

/** What kept the owner from renewing or settling until then. */
function hindrance(history, { proc, asked, leaseMs }, to) {
  const life = history.lives.get(proc)
  const within = ({ from: begin, to: end }) => Math.max(0, Math.min(end, to) - Math.max(begin, asked))
  if (life?.freezes.some((span) => within(span) > 0)) return 'it was frozen'
  if (life?.hits.some((hit) => hit.at >= asked && hit.at <= to && BLOCKS.has(hit.action)))
    return 'it was blocked'
  const lateMs = life?.late.reduce((sum, span) => sum + within(span), 0) ?? 0
  if (lateMs >= leaseMs / STARVED) return 'it got no processor time'
  const cut = history.lines.some(
    (line) =>
      CUT_OFF.has(line.what) && line.at >= asked - CUT_LINGERS_MS && line.at <= to && concerns(line, proc),
  )
  return cut || isDown(history, asked) ? 'it was cut off from the database' : null
}

/** A server is everybody's; a cut is that of one life or of one role, and excuses nobody when it says neither. */
function concerns({ what, child, way }, proc) {
  if (what !== 'cut') return true
  return child === undefined ? way === 'everybody' || way === roleOf(proc) : child === proc
}

function roleOf(proc) {
  return proc.split('-')[0]
}

/** The server was away when the time began, and nobody has said that it was back. */
function isDown(history, at) {
  const last = history.lines.findLast((line) => line.what === 'server' && line.at <= at)
  return last !== undefined && !['up', 'restarted', 'read-write'].includes(last.state)
}
