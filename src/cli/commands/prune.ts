import { optionsFromEnv } from '../../outbox/environment.js'
import { defineCommand } from '../command.js'
import { DATABASE_OPTIONS } from '../database.js'
import { interruptedBy } from '../errors.js'
import { withDatabase } from '../session.js'
import { duration } from '../text.js'
import { durationOption } from '../values.js'

const DAY_MS = 86_400_000
const BATCH = 1_000

export const prune = defineCommand({
  summary: 'deletes events that were done long ago',
  options: {
    'older-than': {
      type: 'string',
      value: 'TIME',
      help: '7d, 12h, 30min, 45s; else OUTBOX_RETENTION_DAYS, else 7d',
    },
    json: { type: 'boolean', help: 'how many, as one JSON value' },
    ...DATABASE_OPTIONS,
  },
  notes:
    'Workers do this by themselves, according to their retention setting; this is for those who want it sooner or by a schedule of their own. Only events that are done go; dead ones stay until somebody acts. It deletes in small batches and may be ended at any time.',
  examples: ['aftercommit prune --older-than 12h'],
  run: (call) => {
    const { values, terminal, signal } = call
    const olderThanMs =
      values['older-than'] === undefined
        ? (optionsFromEnv().retention?.doneMs ?? 7 * DAY_MS)
        : durationOption('older-than', values['older-than'])
    return withDatabase(
      call,
      async ({ store }) => {
        const progress = terminal.progress('Events deleted:')
        let pruned = 0
        for (let last = BATCH; last >= BATCH && !signal.aborted; ) {
          last = await store.pruneDone(olderThanMs, BATCH, signal)
          pruned += last
          progress.add(last)
        }
        progress.end()
        const incomplete = interruptedBy(signal)
        if (values.json) terminal.printResult({ pruned, olderThanMs, complete: !incomplete }, incomplete)
        else terminal.print(`Deleted ${events(pruned)} done more than ${duration(olderThanMs)} ago.`)
        if (incomplete) terminal.say(`aftercommit: ${incomplete.message}`)
        return incomplete ? 1 : 0
      },
      { endsInOrder: true },
    )
  },
})

function events(count: number): string {
  return count === 1 ? '1 event' : `${count} events`
}
