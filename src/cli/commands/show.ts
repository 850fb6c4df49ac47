import { withoutUser } from '../../core/redact.js'
import { instanceOf } from '../../diagnosis.js'
import { REGISTERED_MS } from '../../registry.js'
import type { EventRecord } from '../../store.js'
import { defineCommand } from '../command.js'
import { DATABASE_OPTIONS, type Database } from '../database.js'
import { CommandError, UsageError } from '../errors.js'
import { eventJson, payloadKind, SHOW_PAYLOAD } from '../event-view.js'
import { nextStep } from '../next-step.js'
import { withDatabase } from '../session.js'
import type { Terminal } from '../terminal.js'
import { safe } from '../text.js'

export const show = defineCommand({
  summary: 'tells the whole story of one event',
  takes: ['ID'],
  usage: 'ID',
  options: {
    json: { type: 'boolean', help: 'as one JSON value' },
    ...SHOW_PAYLOAD,
    ...DATABASE_OPTIONS,
  },
  notes: 'The last ten failures are kept with an event. Times are in UTC, by the clock of the database.',
  examples: ['aftercommit show 0199d3c1-6f7a-7b11-9d2e-4f1c2a6b8e01'],
  run: (call) => {
    const { values, given, terminal } = call
    const [eventId] = given
    if (!eventId) throw new UsageError('Which event? aftercommit show ID; aftercommit list shows the ids.')
    const showPayload = values['show-payload']
    return withDatabase(call, async (database) => {
      const [record] = await database.store.list({ eventIds: [eventId], limit: 1 })
      if (!record) throw new CommandError(`There is no event ${eventId}. It may be done and pruned.`)
      const next = await nextOf(database, record)
      if (values.json) terminal.printJson({ ...eventJson(record, showPayload), next })
      else printStory(terminal, record, next, showPayload)
      return 0
    })
  },
})

async function nextOf({ store, now }: Database, record: EventRecord): Promise<string> {
  const [at, paused, instances] = await Promise.all([now(), store.paused(), store.instances(REGISTERED_MS)])
  return nextStep(record, { now: at, paused, instances })
}

function printStory(terminal: Terminal, record: EventRecord, next: string, showPayload: boolean): void {
  const headline = `${safe(record.eventType)}  ${safe(record.eventId)}`
  terminal.print(terminal.style('bold', headline))
  for (const [name, value] of fieldsOf(record, next, showPayload)) {
    if (value === null || value === undefined) continue
    const [first = '', ...others] = linesOf(value)
    terminal.print(`  ${terminal.style('dim', name.padEnd(NAME))}  ${colour(terminal, name, first)}`)
    for (const line of others) terminal.print(`  ${' '.repeat(NAME)}  ${line}`)
  }
  printFailures(terminal, record)
}

const NAME = 12

type Field = readonly [name: string, value: string | null | undefined]

function fieldsOf(record: EventRecord, next: string, showPayload: boolean): readonly Field[] {
  const { status, attempts, aggregateType, aggregateId, lockedBy, lockedUntil } = record
  const metadata = withoutUser(record.metadata ?? {})
  return [
    ['status', attempts === 0 ? status : `${status}, ${times(attempts)}`],
    ['next', next],
    ['number', String(record.seq)],
    ['aggregate', aggregateId === null ? aggregateType : `${aggregateType} ${aggregateId}`],
    ['tenant', record.tenantId],
    ['ordering key', record.orderingKey],
    ['version', String(record.version)],
    ['occurred', new Date(record.occurredAtMs).toISOString()],
    ['written', record.createdAt.toISOString()],
    ['due', isPending(record) ? record.availableAt.toISOString() : null],
    ['done', record.doneAt?.toISOString()],
    [
      'lease',
      lockedBy === null ? null : `instance ${instanceOf(lockedBy)} until ${lockedUntil?.toISOString()}`,
    ],
    ['succeeded', record.handledBy.length > 0 ? record.handledBy.join(', ') : null],
    ['correlation', metadata.correlationId],
    ['caused by', metadata.causationId],
    ['user', metadata.userId],
    ['trace', metadata.traceId ?? metadata.traceparent],
    ['headers', headersOf(record, showPayload)],
    ['payload', payloadOf(record, showPayload)],
  ]
}

function times(attempts: number): string {
  return attempts === 1 ? 'tried once' : `tried ${attempts} times`
}

function isPending({ status }: EventRecord): boolean {
  return status === 'NEW' || status === 'RETRY'
}

function headersOf({ headers }: EventRecord, showPayload: boolean): string | null {
  const entries = Object.entries(headers ?? {})
  if (entries.length === 0) return null
  return showPayload ? JSON.stringify(headers) : `${entries.length}, hidden; --show-payload shows them`
}

function payloadOf(record: EventRecord, showPayload: boolean): string {
  const { kind, size } = payloadKind(record)
  if (kind === 'left out') return 'too large to be loaded'
  const title = `${kind === 'json' ? 'JSON' : 'bytes'}, ${size} B`
  if (!showPayload) return `${title}, hidden; --show-payload shows it`
  const { payloadText, payloadBytes } = record
  return payloadBytes === null
    ? `${payloadText}`
    : `${title}, as base64: ${Buffer.from(payloadBytes).toString('base64')}`
}

function printFailures(terminal: Terminal, { failures, lastError }: EventRecord): void {
  if (failures.length === 0 && lastError === null) return
  terminal.print('')
  if (failures.length === 0) return void printIndented(terminal, `Last error: ${lastError}`)
  terminal.print(
    terminal.style('bold', failures.length === 1 ? 'One failure:' : `The last ${failures.length} failures:`),
  )
  for (const { at, handler, instance, message } of failures) {
    const who = handler === null ? 'before any handler' : `handler ${safe(handler)}`
    terminal.print(`  ${at.toISOString()}  ${who}, instance ${safe(instance)}`)
    printIndented(terminal, message)
  }
}

function printIndented(terminal: Terminal, text: string): void {
  for (const line of linesOf(text)) terminal.print(`    ${line}`)
}

/** Lines of a stack stay lines; everything else that a terminal could obey is made visible. */
function linesOf(text: string): string[] {
  return text.split(/\r?\n/).map(safe)
}

function colour(terminal: Terminal, name: string, text: string): string {
  if (name !== 'status') return text
  if (text.startsWith('DEAD')) return terminal.style('red', text)
  return text.startsWith('DONE') ? terminal.style('green', text) : text
}
