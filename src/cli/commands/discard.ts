import { defineCommand } from '../command.js'
import { DEAD_OPTIONS, runDeadLetters } from '../dead-letters.js'

export const discard = defineCommand({
  summary: 'deletes dead events for good',
  takes: ['ID'],
  usage: '(ID | --dead | --type TYPE)',
  options: DEAD_OPTIONS,
  notes:
    'Nobody can get them back. It says what would be affected and asks first. Each batch leaves an audit line as JSON on standard error: who, what, and up to a hundred ids.',
  examples: ['aftercommit discard --type legacy.thing', 'aftercommit discard --dead --yes'],
  run: (call) =>
    runDeadLetters(call, {
      name: 'discard',
      done: 'Discarded',
      question: (events) => `Delete ${events} for good?`,
    }),
})
