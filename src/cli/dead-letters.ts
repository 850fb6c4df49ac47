import type { DeadLetterCount, DeadLetterSelection, DeadLetters } from '../outbox/dead-letters.js'
import { createOutbox } from '../outbox.js'
import type { Call } from './command.js'
import { DATABASE_OPTIONS } from './database.js'
import { CommandError, InterruptedError, UsageError } from './errors.js'
import { auditLogger, withDatabase } from './session.js'
import type { Terminal } from './terminal.js'
import { safe } from './text.js'

/** Of the commands that act on dead events. */
export const DEAD_OPTIONS = {
  dead: { type: 'boolean', help: 'all dead events' },
  type: { type: 'string', value: 'TYPE', help: 'the dead events of this type' },
  yes: { type: 'boolean', short: 'y', help: 'does not ask; needed where nobody can be asked' },
  json: { type: 'boolean', help: 'what was done, as one JSON value' },
  ...DATABASE_OPTIONS,
} as const

export interface Act {
  readonly name: 'retry' | 'discard'
  /** `Retried`, at the beginning of the report. */
  readonly done: string
  question(events: string): string
}

/** Types that are named one by one when several are affected. */
const NAMED = 10
const BATCH = { least: 1_000, most: 10_000, share: 100 }

interface Affected {
  readonly selection: DeadLetterSelection
  readonly counts: readonly DeadLetterCount[]
  readonly total: number
}

/** Says what would be affected, asks, acts in batches, and reports. */
export function runDeadLetters(call: Call<typeof DEAD_OPTIONS>, act: Act): Promise<number> {
  const { values, terminal } = call
  const selection = selectionOf(call, act.name)
  return withDatabase(
    call,
    async ({ store }) => {
      const outbox = createOutbox({ store, logger: auditLogger(terminal) })
      try {
        const affected = await look(outbox.deadLetters, selection)
        if (affected.total > 0) {
          announce(terminal, affected)
          const sure = await terminal.confirm(act.question(events(affected.total)), values.yes)
          if (!sure) throw new CommandError('Nothing was changed.')
        }
        return report(call, act, affected, await actInBatches(call, act, outbox.deadLetters, affected))
      } finally {
        // Rings the doorbell once more, if that is still to be done.
        await outbox.stop()
      }
    },
    { endsInOrder: true },
  )
}

function selectionOf({ values, given }: Call<typeof DEAD_OPTIONS>, name: string): DeadLetterSelection {
  const [eventId] = given
  if (eventId === undefined && values.type) return { eventType: values.type }
  if (eventId === undefined && values.dead && values.type === undefined) return { all: true }
  if (eventId && !values.dead && values.type === undefined) return eventId
  throw new UsageError(`Which events? aftercommit ${name} ID, or --dead for all dead ones, or --type TYPE.`)
}

async function look(deadLetters: DeadLetters, selection: DeadLetterSelection): Promise<Affected> {
  if (typeof selection === 'string') {
    const { eventType } = await deadEvent(deadLetters, selection)
    return { selection, counts: [{ eventType, count: 1 }], total: 1 }
  }
  const all = await deadLetters.counts()
  const counts = 'all' in selection ? all : all.filter(({ eventType }) => eventType === selection.eventType)
  return { selection, counts, total: counts.reduce((sum, { count }) => sum + count, 0) }
}

async function deadEvent(deadLetters: DeadLetters, eventId: string) {
  const record = await deadLetters.show(eventId)
  if (!record)
    throw new CommandError(`There is no event ${eventId}. It may be done and pruned, or discarded.`)
  if (record.status === 'DEAD') return record
  throw new CommandError(
    `Event ${eventId} is not dead but ${record.status}. aftercommit show ${eventId} tells what will happen.`,
  )
}

function announce(terminal: Terminal, { counts, total }: Affected): void {
  const types = counts.length === 1 ? 'one type' : `${counts.length} types`
  terminal.say(`${events(total)} of ${types}:`)
  for (const { eventType, count } of counts.slice(0, NAMED))
    terminal.say(`  ${String(count).padStart(String(total).length)}  ${safe(eventType)}`)
  if (counts.length > NAMED) terminal.say(`  … and ${counts.length - NAMED} types more`)
}

/** Never more than were announced: those that die again meanwhile wait for the next time. */
async function actInBatches(
  { terminal, signal }: Call<typeof DEAD_OPTIONS>,
  { name, done }: Act,
  deadLetters: DeadLetters,
  { selection, total }: Affected,
): Promise<number> {
  const size = Math.min(BATCH.most, Math.max(BATCH.least, Math.ceil(total / BATCH.share)))
  const progress = terminal.progress(done, total)
  let count = 0
  try {
    while (count < total && !signal.aborted) {
      const ids = await deadLetters[name](selection, { limit: Math.min(size, total - count) })
      if (ids.length === 0) break
      count += ids.length
      progress.add(ids.length)
    }
  } catch (error) {
    terminal.say(`${done} ${count} of ${events(total)} before it failed:`)
    throw error
  } finally {
    progress.end()
  }
  return count
}

function report(
  { values, terminal, signal }: Call<typeof DEAD_OPTIONS>,
  { name, done }: Act,
  { counts, total }: Affected,
  count: number,
): number {
  const incomplete =
    count === total ? undefined : signal.aborted ? new InterruptedError() : changed(total - count)
  const types = Object.fromEntries(typesOf(counts))
  if (values.json) terminal.printResult({ act: name, count, of: total, types }, incomplete)
  else if (total === 0) terminal.print('There are no such dead events.')
  else terminal.print(`${done} ${count === total ? '' : `${count} of `}${events(total)}.`)
  if (incomplete === undefined) return 0
  terminal.say(`aftercommit: ${incomplete.message}`)
  return 1
}

function changed(others: number): CommandError {
  const which = others === 1 ? '1 of the events is' : `${others} of the events are`
  const what = others === 1 ? 'it' : 'them'
  return new CommandError(`${which} no longer dead, because another process has changed or deleted ${what}.`)
}

function typesOf(counts: readonly DeadLetterCount[]): readonly (readonly [string, number])[] {
  return counts.map(({ eventType, count }) => [eventType, count])
}

function events(count: number): string {
  return count === 1 ? '1 dead event' : `${count} dead events`
}
