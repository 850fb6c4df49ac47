import { GLOBAL_AGGREGATE } from '../../core/envelope.js'
import { isCutName, tooLarge } from '../../core/row-limits.js'
import { checkedRow } from '../../core/stored-event.js'
import type { ClaimedRow } from '../../store.js'
import { LEFT_OUT, LEFT_OUT_BYTES } from './columns.js'
import type { Row } from './driver.js'

/** Ends the token of a row whose former owner vanished: it is tried alone, and charged if it vanishes again. */
export const SOLO = ':solo'
/** The same of rows that are tried together: if they vanish again, each is tried alone. */
export const SOME = ':some'

export function claimedRow(row: Row, token: string): ClaimedRow {
  return checkedRow<ClaimedRow>(uncheckedRow(row, token), true)
}

/** Written out field by field: this runs for every event. */
export function uncheckedRow(row: Row, token: string) {
  const base64 = present(row[9], LEFT_OUT_BYTES)
  const headers = present(row[10], LEFT_OUT)
  const metadata = present(row[11], LEFT_OUT)
  const handledBy = present(row[14], LEFT_OUT)
  const payloadBytes = base64 === null ? null : new Uint8Array(Buffer.from(base64, 'base64'))
  const payloadText = present(row[8] ?? (row[9] === null ? 'null' : null), LEFT_OUT)
  const payloadSize = payloadText === null ? (payloadBytes?.length ?? 0) : Buffer.byteLength(payloadText)
  return {
    eventId: row[0],
    eventType: row[2],
    aggregateType: row[3] ?? GLOBAL_AGGREGATE,
    aggregateId: row[4],
    tenantId: row[5],
    orderingKey: row[6],
    version: row[7] === null ? 1 : Number(row[7]),
    payloadText,
    payloadBytes,
    headers,
    metadata,
    occurredAtMs: Number(row[12]),
    payloadSize,
    seq: Number(row[1]),
    attempts: row[13] === null ? 0 : Number(row[13]),
    handledBy,
    token,
    suspect: token.endsWith(SOLO) || token.endsWith(SOME),
    bytes: payloadSize + (headers?.length ?? 0) + (metadata?.length ?? 0) + (handledBy?.length ?? 0),
    invalid: invalidOf(row),
  }
}

function present(text: unknown, leftOut: string): string | null {
  return text === leftOut ? null : (text as string | null)
}

/** Names the columns that were too large to be loaded; undefined for nearly every row. */
function invalidOf(row: Row): string | undefined {
  const isComplete =
    row[8] !== LEFT_OUT &&
    row[9] !== LEFT_OUT_BYTES &&
    row[10] !== LEFT_OUT &&
    row[11] !== LEFT_OUT &&
    row[14] !== LEFT_OUT &&
    !isCutName(row[2]) &&
    !isCutName(row[3]) &&
    !isCutName(row[4]) &&
    !isCutName(row[5]) &&
    !isCutName(row[6])
  if (isComplete) return undefined
  const columns = [
    ...CONTENT.filter(([, at]) => row[at] === (at === 9 ? LEFT_OUT_BYTES : LEFT_OUT)),
    ...NAMES.filter(([, at]) => isCutName(row[at])),
  ]
  return tooLarge(columns.map(([column]) => column))
}

const CONTENT = [
  ['payload', 8],
  ['payload_bytes', 9],
  ['headers', 10],
  ['metadata', 11],
  ['handled_by', 14],
] as const
const NAMES = [
  ['event_type', 2],
  ['aggregate_type', 3],
  ['aggregate_id', 4],
  ['tenant_id', 5],
  ['ordering_key', 6],
] as const
