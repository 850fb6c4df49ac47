import { optionsFromEnv } from '../../outbox/environment.js'
import { createOutbox, type Outbox } from '../../outbox.js'
import type { OutboxStore } from '../../store.js'
import { defineCommand } from '../command.js'
import { DATABASE_OPTIONS, openDatabase } from '../database.js'
import { leave, reach, unlessAborted, whenAborted } from '../ending.js'
import { type InterruptedError, interruptedBy } from '../errors.js'
import { type Close, HANDLERS_OPTION, registerHandlers } from '../handlers.js'
import { loggerFromEnv } from '../log.js'
import { safe } from '../text.js'
import { hideUrlParts } from '../url-parts.js'
import { counted } from '../words.js'

/** Events of types without a handler here are left alone, however old they are: others may be for them. */
const NEVER_MS = Number.MAX_SAFE_INTEGER

export const consume = defineCommand({
  summary: 'handles what is due, and ends',
  options: {
    ...HANDLERS_OPTION,
    ...DATABASE_OPTIONS,
    once: { type: 'boolean', help: 'exactly one event' },
    json: { type: 'boolean', help: 'prints one JSON object: handled, succeeded, failed' },
  },
  notes:
    'The exit code is 0 when all handlers succeeded or nothing was due, and 1 when an event failed and waits for its retry or is dead. Events without a handler in FILE are left alone. Failures are logged as JSON lines on standard error.',
  examples: ['aftercommit consume --once --handlers src/handlers.js'],
  run: async ({ values, terminal, signal }) => {
    const { dispatcher, ...options } = optionsFromEnv()
    const logger = loggerFromEnv({ level: 'warn', write: (line) => void process.stderr.write(line) })
    const database = await openDatabase(values)
    const tally = tallyOf(database.store)
    const outbox = createOutbox({
      ...options,
      dispatcher: { ...dispatcher, unroutableGraceMs: NEVER_MS },
      store: database.store,
      logger,
      redact: hideUrlParts,
    })
    let close: Close = () => {}
    let incomplete: InterruptedError | undefined
    try {
      close = await registerHandlers(values.handlers, outbox)
      await unlessAborted(reach(database), signal)
      const stopped = whenAborted(signal).then(() => outbox.stop())
      await Promise.race([values.once ? outbox.consumeOne() : handleAll(outbox), stopped])
      await outbox.stop()
      const result = { handled: tally.done + tally.failing.size, succeeded: tally.done }
      const paused = result.handled === 0 ? await outbox.paused() : []
      incomplete = interruptedBy(signal)
      if (values.json) terminal.printResult({ ...result, failed: tally.failing.size }, incomplete)
      else terminal.print(inWords(tally, paused, incomplete))
    } finally {
      try {
        await outbox.stop()
        await close()
      } finally {
        await leave(() => database.close())
      }
    }
    if (incomplete) terminal.say(`aftercommit: ${incomplete.message}`)
    return tally.failing.size > 0 || incomplete ? 1 : 0
  },
})

interface Tally {
  done: number
  /** Ids of the events whose last attempt failed. */
  readonly failing: Set<string>
}

/** Counts what was written, as it is written: nothing else knows what became of an event. */
function tallyOf(store: OutboxStore): Tally {
  const tally = { done: 0, failing: new Set<string>() }
  const settle = store.settleIfLeased.bind(store)
  store.settleIfLeased = async (settlements, keepDone) => {
    const settled = await settle(settlements, keepDone)
    for (const settlement of settlements) {
      if (!settled.has(settlement.eventId) || settlement.outcome === 'release') continue
      if (settlement.outcome === 'done') {
        tally.done++
        tally.failing.delete(settlement.eventId)
      } else if (settlement.outcome === 'dead' || settlement.failures.length > 0)
        tally.failing.add(settlement.eventId)
    }
    return settled
  }
  return tally
}

async function handleAll(outbox: Outbox): Promise<void> {
  await outbox.start()
  await outbox.drain()
}

function inWords(
  { done, failing }: Tally,
  paused: readonly string[],
  incomplete: InterruptedError | undefined,
): string {
  if (done + failing.size > 0) {
    const parts = [
      done > 0 ? `${counted(done, 'event')} succeeded` : '',
      failing.size > 0 ? `${counted(failing.size, 'event')} failed` : '',
    ]
    return `${parts.filter(Boolean).join(', ')}.`
  }
  if (incomplete) return 'Nothing was handled.'
  if (paused.includes('*')) return 'Nothing was handled: everything is paused.'
  return paused.length > 0 ? `Nothing was due. Paused: ${safe(paused.join(', '))}.` : 'Nothing was due.'
}
