import type { EventRecord, EventStatusName, OutboxStore } from '../../store.js'
import { defineCommand } from '../command.js'
import { DATABASE_OPTIONS } from '../database.js'
import { UsageError } from '../errors.js'
import { eventJson, payloadKind, SHOW_PAYLOAD } from '../event-view.js'
import { withDatabase } from '../session.js'
import type { Terminal } from '../terminal.js'
import { type Column, cut, duration, safe, table, widthOf } from '../text.js'
import { integerOption } from '../values.js'

/**
 * Number of rows per query: few in the first query, then as many as `bytes` allows. Larger pages are cheaper, because every
 * query may scan the whole table.
 */
const PAGE = { first: 100, least: 10, most: 10_000, bytes: 16 * 1_048_576 }
const MOST = 100_000
/** Width of an error in terminal cells. `aftercommit show` prints the whole text. */
const ERROR_CELLS = 200
/** Least width of a terminal on which errors are shown. Ids are never cut, because users copy them. */
const WIDE = 100

const STATUSES: Readonly<Record<string, readonly (EventStatusName | undefined)[]>> = {
  any: [undefined],
  new: ['NEW'],
  retry: ['RETRY'],
  dead: ['DEAD'],
  done: ['DONE'],
  pending: ['NEW', 'RETRY'],
}

interface Wanted {
  readonly statuses: readonly (EventStatusName | undefined)[]
  readonly eventType: string | undefined
  readonly limit: number
  readonly afterSeq: number
}

export const list = defineCommand({
  summary: 'shows events, the oldest first',
  options: {
    status: {
      type: 'string',
      value: 'NAME',
      default: 'any',
      help: 'new, retry, pending (both), dead or done',
    },
    type: { type: 'string', value: 'TYPE', help: 'of this event type only' },
    limit: { type: 'string', value: 'N', default: '100', help: 'how many at most' },
    after: { type: 'string', value: 'SEQ', default: '0', help: 'goes on behind this number' },
    json: { type: 'boolean', help: 'one JSON array, an event a line' },
    ...SHOW_PAYLOAD,
    ...DATABASE_OPTIONS,
  },
  notes:
    'SEQ is the number that the database gave an event when it was written. It is the first column; where a list ends before the last event, the command for the next page stands below it.',
  examples: ['aftercommit list --status dead', 'aftercommit list --type order.placed --limit 1000 --json'],
  run: (call) => {
    const { values, terminal } = call
    const statuses = Object.hasOwn(STATUSES, values.status) ? STATUSES[values.status] : undefined
    if (!statuses) throw new UsageError('--status must be new, retry, pending, dead, done or any.')
    const wanted = {
      statuses,
      eventType: values.type,
      limit: integerOption('limit', values.limit, { min: 1, max: MOST }),
      afterSeq: integerOption('after', values.after, {}),
    }
    return withDatabase(call, async ({ store, now }) => {
      if (values.json) await printArray(terminal, store, wanted, values['show-payload'])
      else await printTable(terminal, store, wanted, { at: await now(), showPayload: values['show-payload'] })
      return 0
    })
  },
})

/** Page by page; one more than wanted, if there is one, so that the end is known. */
async function* pagesOf(store: OutboxStore, wanted: Wanted): AsyncGenerator<readonly EventRecord[]> {
  const { statuses, eventType } = wanted
  let { afterSeq } = wanted
  let size = PAGE.first
  for (let left = wanted.limit + 1; left > 0; ) {
    const limit = Math.min(size, left)
    const found = await Promise.all(
      statuses.map((status) => store.list({ status, eventType, afterSeq, limit })),
    )
    const page = found
      .flat()
      .sort((a, b) => a.seq - b.seq)
      .slice(0, limit)
    if (page.length > 0) yield page
    if (page.length < limit) return
    left -= page.length
    afterSeq = (page.at(-1) as EventRecord).seq
    size = nextSize(page)
  }
}

function nextSize(page: readonly EventRecord[]): number {
  const bytes = page.reduce((sum, record) => sum + payloadKind(record).size, page.length)
  return Math.max(PAGE.least, Math.min(PAGE.most, Math.floor((PAGE.bytes / bytes) * page.length)))
}

/** Written as it is read, so that its length does not matter. */
async function printArray(terminal: Terminal, store: OutboxStore, wanted: Wanted, showPayload: boolean) {
  let left = wanted.limit
  for await (const page of pagesOf(store, wanted)) {
    for (const record of page.slice(0, left)) {
      terminal.write(left === wanted.limit ? '[\n' : ',\n')
      terminal.write(safe(JSON.stringify(eventJson(record, showPayload))))
      left--
    }
  }
  terminal.print(left === wanted.limit ? '[]' : '\n]')
}

interface Look {
  readonly at: Date
  readonly showPayload: boolean
}

async function printTable(terminal: Terminal, store: OutboxStore, wanted: Wanted, look: Look): Promise<void> {
  const rows: Row[] = []
  for await (const page of pagesOf(store, wanted)) rows.push(...page.map((record) => rowOf(record, look)))
  if (rows.length === 0) return terminal.say('There are no such events.')
  const shown = rows.slice(0, wanted.limit)
  const last = look.showPayload ? [PAYLOAD] : terminal.room >= WIDE ? [ERROR] : []
  const columns = [...COLUMNS, ...last]
  const [titles = '', ...lines] = table(columns, shown, roomFor(shown, terminal.room))
  terminal.print(terminal.style('bold', titles))
  for (const [at, line] of lines.entries()) {
    const { status } = shown[at] as Row
    terminal.print(status === 'DEAD' ? terminal.style('red', line) : line)
  }
  if (rows.length > shown.length)
    terminal.say(`There are more: the next page is the same command with --after ${shown.at(-1)?.seq}`)
}

/** Never so little that an id would be cut: then rather a line that the terminal breaks. */
function roomFor(rows: readonly Row[], room: number): number {
  if (room === Number.POSITIVE_INFINITY) return room
  const front = table(COLUMNS.slice(0, 3), rows)[0] as string
  const ids = rows.reduce((most, { eventId }) => Math.max(most, widthOf(safe(eventId))), 0)
  return Math.max(room, front.length - 'ID'.length + ids + '  …'.length)
}

/** Columns of the table, without the payload. */
interface Row {
  readonly seq: number
  readonly status: EventStatusName
  readonly eventId: string
  readonly eventType: string
  readonly attempts: number
  readonly age: string
  readonly payload: string
  readonly error: string
}

function rowOf(record: EventRecord, { at, showPayload }: Look): Row {
  const { seq, status, eventId, eventType, attempts, createdAt, lastError } = record
  const error = cut(firstLine(lastError ?? ''), ERROR_CELLS)
  const age = duration(Math.max(0, at.getTime() - createdAt.getTime()))
  return { seq, status, eventId, eventType, attempts, age, payload: payloadOf(record, showPayload), error }
}

function payloadOf(record: EventRecord, showPayload: boolean): string {
  if (showPayload && record.payloadText !== null) return record.payloadText
  const { kind, size } = payloadKind(record)
  if (kind === 'left out') return kind
  return `${kind}, ${size} B`
}

function firstLine(text: string): string {
  return text.split('\n', 1)[0] as string
}

const COLUMNS: readonly Column<Row>[] = [
  { title: 'SEQ', right: true, cell: ({ seq }) => String(seq) },
  { title: 'STATUS', cell: ({ status }) => status },
  { title: 'ID', cell: ({ eventId }) => eventId },
  { title: 'TYPE', cell: ({ eventType }) => eventType, flexible: true },
  { title: 'TRY', right: true, cell: ({ attempts }) => String(attempts) },
  { title: 'AGE', right: true, cell: ({ age }) => age },
]
const ERROR: Column<Row> = { title: 'LAST ERROR', cell: ({ error }) => error, flexible: true }
const PAYLOAD: Column<Row> = { title: 'PAYLOAD', cell: ({ payload }) => payload, flexible: true }
