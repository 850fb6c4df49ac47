// The store that the outbox of a child is given: it writes down what goes through it, and reaches the points at which
// the child can be struck. The product knows nothing of it.
import { now } from '../lib/journal.js'

export function watched(store, { journal, points }) {
  const wraps = wrapsOf(journal, points)
  return new Proxy(store, {
    get(target, name) {
      const value = Reflect.get(target, name, target)
      if (typeof value !== 'function') return value
      const method = value.bind(target)
      const wrap = wraps[name]
      return wrap ? (...args) => wrap(method, ...args) : method
    },
  })
}

function wrapsOf(journal, points) {
  let calls = 0
  // Who waits so long for an answer may lose a lease without a fault of its own.
  const slow = (call, asked, leaseMs) => {
    const ms = now() - asked
    if (ms > leaseMs / 4) journal.write('late', { ms, call })
  }
  // A row whose last owner vanished has a token of its own.
  const claimed = ({ leaseMs }, asked, rows) => {
    for (const token of new Set(rows.map((row) => row.token))) {
      const events = rows.filter((row) => row.token === token).map((row) => [row.eventId, row.attempts])
      journal.write('claimed', { token, leaseMs, asked, events })
    }
    if (rows.length > 0) points.reach('after-claim')
  }
  const claims = async (method, request) => {
    const asked = now()
    const result = await method(request)
    slow('claim', asked, request.leaseMs)
    claimed(request, asked, result.rows)
    return result
  }
  return {
    claim: claims,
    claimOrdered: claims,
    async claimUnroutable(method, request) {
      const asked = now()
      const rows = await method(request)
      claimed(request, asked, rows)
      return rows
    },
    async append(method, client, rows, options) {
      const asked = now()
      const result = await method(client, rows, options)
      born(journal, rows, result.seqs, options.leaseMs, asked)
      return result
    },
    async transaction(method, body, client) {
      const result = await method(async (session) => {
        watchSession(session, journal)
        const value = await body(session)
        points.reach('before-commit')
        return value
      }, client)
      points.reach('after-commit')
      return result
    },
    async renewIfLeased(method, claimsHeld, leaseMs) {
      const asked = now()
      const renewed = await method(claimsHeld, leaseMs).finally(() => slow('renewal', asked, leaseMs))
      const held = claimsHeld.filter(({ eventId }) => renewed.has(eventId))
      const pairs = held.map(({ eventId, token }) => [eventId, token])
      if (pairs.length > 0) journal.write('renewed', { leaseMs, asked, claims: pairs })
      return renewed
    },
    async settleIfLeased(method, settlements, keepDone) {
      points.reach('before-settle')
      const n = ++calls
      const triples = settlements.map(({ eventId, token, outcome }) => [eventId, token, outcome])
      journal.write('settling', { n, settlements: triples })
      let settled
      try {
        settled = await method(settlements, keepDone)
      } catch (error) {
        journal.write('settle-failed', { n, reason: String(error?.message ?? error).slice(0, 200) })
        throw error
      }
      points.reach('after-settle')
      journal.write('settled', { n, events: [...settled] })
      return settled
    },
  }
}

/** Rows that are written with the COMMIT are born by another door than append(). */
function watchSession(session, journal) {
  const { appendLater } = session
  if (!appendLater) return
  session.appendLater = (late) => {
    let asked = now()
    return appendLater.call(session, {
      ...late,
      sent() {
        asked = now()
        late.sent()
      },
      written(seqs) {
        born(journal, late.rows, seqs, late.leaseMs, asked)
        late.written(seqs)
      },
    })
  }
}

function born(journal, rows, seqs, leaseMs, asked) {
  const leased = rows.filter(
    ({ token, event }) => token !== null && (typeof seqs === 'number' || seqs.has(event.eventId)),
  )
  const [first] = leased
  if (!first) return
  journal.write('born', {
    token: first.token,
    leaseMs,
    asked,
    events: leased.map((row) => row.event.eventId),
  })
}
