import { createOutbox } from '../../outbox.js'
import { defineCommand } from '../command.js'
import { DATABASE_OPTIONS } from '../database.js'
import { auditLogger, withDatabase } from '../session.js'
import { safe } from '../text.js'

export const pause = defineCommand({
  summary: 'keeps all instances from starting to handle events',
  takes: ['TYPE'],
  options: {
    json: { type: 'boolean', help: 'what is paused now, as one JSON value' },
    ...DATABASE_OPTIONS,
  },
  notes:
    'Without a TYPE it pauses everything. Handlers under way go on; new events wait. It is kept in the database and outlives every process, until aftercommit resume.',
  examples: ['aftercommit pause order.placed', 'aftercommit pause'],
  run: (call) => {
    const { values, given, terminal } = call
    const type = given[0] ?? '*'
    return withDatabase(call, async ({ store }) => {
      const outbox = createOutbox({ store, logger: auditLogger(terminal) })
      await outbox.pause(type)
      await outbox.stop()
      const resume = type === '*' ? 'aftercommit resume' : `aftercommit resume ${type}`
      if (values.json) terminal.printJson({ paused: await store.paused() })
      else terminal.print(`Paused: ${type === '*' ? 'everything' : safe(type)}. To go on: ${safe(resume)}`)
      return 0
    })
  },
})
