// The oracle. It knows nothing of the outbox: it compares the orders that are in the database with the lines
// that handlers wrote to files.
import { readRecords } from './records.js'

/**
 * @param {import('pg').Pool} pool
 * @param {string} folder
 * @param {number} killedPid
 */
export async function judge(pool, folder, killedPid) {
  const { rows } = await pool.query('select placed_event_id, payment_event_id from orders')
  /** @type {Map<string, string>} the handler that each committed event must have reached */
  const expected = new Map()
  for (const row of rows) {
    expected.set(row.placed_event_id, 'send-receipt')
    expected.set(row.payment_event_id, 'charge-card')
  }

  /** @type {Map<string, { handler: string, pid: number, at: bigint }[]>} */
  const handled = new Map()
  for (const [eventId = '', handler = '', pid, at = '0'] of readRecords(folder, 'handled')) {
    const calls = handled.get(eventId) ?? []
    calls.push({ handler, pid: Number(pid), at: BigInt(at) })
    handled.set(eventId, calls)
  }

  const lost = [...expected].filter(
    ([id, handler]) => !handled.get(id)?.some((call) => call.handler === handler),
  )
  const phantoms = [...handled].filter(([id, calls]) =>
    calls.some((call) => call.handler !== expected.get(id)),
  )
  const repeated = [...handled.values()].filter((calls) => calls.length > 1)
  return {
    committed: expected.size,
    handled: handled.size,
    lost: lost.length,
    phantoms: phantoms.length,
    duplicates: repeated.length,
    unexplained: repeated.filter((calls) => !calls.some((call) => call.pid === killedPid)).length,
    hot: latencies('charge-card'),
    across: latencies('send-receipt'),
  }

  /** From the commit to the start of the handler's first call. @param {string} handler */
  function latencies(handler) {
    const ms = readRecords(folder, 'commits')
      .filter(([id = '']) => expected.get(id) === handler && handled.has(id))
      .map(([id = '', committedAt = '0']) => {
        const starts = (handled.get(id) ?? []).map((call) => call.at)
        const first = starts.reduce((earliest, at) => (at < earliest ? at : earliest))
        return Number(first - BigInt(committedAt)) / 1e6
      })
      .sort((a, b) => a - b)
    const at = (/** @type {number} */ share) =>
      ms[Math.min(ms.length - 1, Math.floor(ms.length * share))] ?? 0
    return { p50: at(0.5), p99: at(0.99), max: at(1) }
  }
}
