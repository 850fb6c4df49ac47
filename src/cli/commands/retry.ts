import { defineCommand } from '../command.js'
import { DEAD_OPTIONS, runDeadLetters } from '../dead-letters.js'

export const retry = defineCommand({
  summary: 'makes dead events due again',
  takes: ['ID'],
  usage: '(ID | --dead | --type TYPE)',
  options: DEAD_OPTIONS,
  notes:
    'They are due at once, with a fresh count of attempts; handlers that have succeeded already are not called again. One with an ordering key goes to the tail of its key. It says what would be affected and asks first. Each batch leaves an audit line as JSON on standard error: who, what, and up to a hundred ids.',
  examples: ['aftercommit retry --type order.placed', 'aftercommit retry --dead --yes'],
  run: (call) =>
    runDeadLetters(call, { name: 'retry', done: 'Retried', question: (events) => `Retry ${events}?` }),
})
