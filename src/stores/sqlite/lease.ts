import { textIn } from '../../core/columns.js'
import { checkedRow } from '../../core/stored-event.js'
import type { ClaimedRow } from '../../store.js'
import { EVENT_COLUMNS, reasonOf, WITHOUT_PAYLOAD } from './columns.js'
import type { Connection, Params } from './driver.js'
import type { Names } from './names.js'

/** Ends the token of a row whose former owner vanished: it is tried alone, and charged if it vanishes again. */
export const SOLO = ':solo'
/** The same of rows that are tried together: if they vanish again, each is tried alone. */
export const SOME = ':some'

/** What claimedRow() reads as well: whether the payload is JSON, which SQLite tells in a fraction of the time of a parser. */
const CLAIM_COLUMNS = `${EVENT_COLUMNS}, json_valid(payload) as is_json`

/** Neighbours, as rows mostly are, are found and written several times faster without a list. */
const PLACES = {
  range: 'seq between :first and :last',
  list: 'seq in (select value from json_each(:seqs))',
}

export function leaseStatements(names: Names) {
  const until = 'locked_until = :now + cast(:leaseMs as integer)'
  // No function is called here: one that fails could break the statement off, and for that each page would be kept twice.
  const take = `update ${names.events} set ${until}, locked_by = `
  const owner = `case when locked_by is null then :token else :token || :mark end`
  const charge = `update ${names.events} set attempts = attempts + 1`
  const isSolo = `and substr(locked_by, -${SOLO.length}) = '${SOLO}'`
  const read = (columns: string) => placed(`select ${columns} from ${names.events}`, 'order by seq')
  return {
    handled: { charge: placed(charge, isSolo), take: placed(take + owner), read: read(CLAIM_COLUMNS) },
    // Nobody is going to read the payload.
    unroutable: { charge: null, take: placed(`${take} :token`), read: read(WITHOUT_PAYLOAD) },
  }
}

function placed(statement: string, end = '') {
  return {
    range: `${statement} where ${PLACES.range} ${end}`,
    list: `${statement} where ${PLACES.list} ${end}`,
  }
}

type Statements = ReturnType<typeof leaseStatements>['handled' | 'unroutable']

interface LeaseRequest {
  readonly token: string
  readonly leaseMs: number
  /** How many of them may have lost a lease. */
  readonly suspects?: number
  /** Those are tried together. */
  readonly isGroup?: boolean
}

/** Rows without a gap between them. */
export interface Range {
  readonly first: number
  readonly last: number
}

/** Inside a write transaction: takes the lease of these rows, each named once. They come back in the order of `seq`. */
export function lease(
  sql: Statements,
  db: Connection,
  request: LeaseRequest,
  now: number,
  seqs: readonly number[],
): ClaimedRow[] {
  if (seqs.length === 0) return []
  const first = seqs.reduce((a, b) => Math.min(a, b))
  const last = seqs.reduce((a, b) => Math.max(a, b))
  if (last - first + 1 === seqs.length) return leaseRange(sql, db, request, now, { first, last })
  return take(sql, db, request, now, 'list', { seqs: JSON.stringify(seqs) })
}

export function leaseRange(
  sql: Statements,
  db: Connection,
  request: LeaseRequest,
  now: number,
  { first, last }: Range,
): ClaimedRow[] {
  return take(sql, db, request, now, 'range', { first, last })
}

function take(
  sql: Statements,
  db: Connection,
  { token, leaseMs, suspects = 0, isGroup = false }: LeaseRequest,
  now: number,
  kind: keyof typeof PLACES,
  place: Params,
): ClaimedRow[] {
  if (sql.charge && suspects > 0) db.run(sql.charge[kind], place)
  const mark = sql.charge ? { mark: isGroup ? SOME : SOLO } : {}
  db.run(sql.take[kind], { ...place, ...mark, token, leaseMs, now })
  let before: ClaimedRow | undefined
  return db.lists(sql.read[kind], place).map((row) => {
    before = claimedRow(row, before)
    return before
  })
}

export function claimedRow(row: readonly unknown[], before?: ClaimedRow): ClaimedRow {
  const claimed = uncheckedRow(row)
  // One string for many equal ones: whoever looks it up later need not read it.
  if (claimed.eventType === before?.eventType) claimed.eventType = before?.eventType
  if (claimed.aggregateType === before?.aggregateType) claimed.aggregateType = before?.aggregateType
  return checkedRow<ClaimedRow>(claimed, Number(row[17]) === 1)
}

/** Written out field by field: this runs for every event. */
export function uncheckedRow(row: readonly unknown[]) {
  const payloadBytes = bytesOf(row[16])
  const token = textIn(row[14])
  const leftOut = row[11] as string | null
  const isLoaded = leftOut === null || !leftOut.includes('payload')
  const payloadText = row[15] ?? (payloadBytes === null && isLoaded ? 'null' : null)
  const payloadSize = payloadBytes instanceof Uint8Array ? payloadBytes.length : sizeOf(payloadText)
  return {
    eventId: row[0],
    seq: Number(row[1]),
    eventType: row[2],
    aggregateType: row[3],
    aggregateId: row[4],
    tenantId: row[5],
    orderingKey: row[6],
    version: Number(row[7]),
    headers: row[8],
    metadata: row[9],
    occurredAtMs: Math.round(Number(row[10])),
    payloadSize,
    attempts: Number(row[12]),
    handledBy: row[13],
    token,
    suspect: token.endsWith(SOLO) || token.endsWith(SOME),
    payloadText,
    payloadBytes,
    bytes: payloadSize + lengthOf(row[8]) + lengthOf(row[9]) + lengthOf(row[13]),
    invalid: leftOut === null ? undefined : reasonOf(leftOut),
  }
}

function sizeOf(text: unknown): number {
  return typeof text === 'string' ? Buffer.byteLength(text) : 0
}

function lengthOf(text: unknown): number {
  return typeof text === 'string' ? text.length : 0
}

/** A Buffer, a Uint8Array or (libsql) an ArrayBuffer. A column can hold values of any type. */
function bytesOf(value: unknown): unknown {
  if (value instanceof ArrayBuffer) return new Uint8Array(value)
  return value instanceof Uint8Array ? new Uint8Array(value) : (value ?? null)
}
