import { createOutbox } from '../../outbox.js'
import { defineCommand } from '../command.js'
import { DATABASE_OPTIONS } from '../database.js'
import { auditLogger, withDatabase } from '../session.js'
import { safe } from '../text.js'

export const resume = defineCommand({
  summary: 'takes a pause back',
  takes: ['TYPE'],
  options: {
    json: { type: 'boolean', help: 'what is paused now, as one JSON value' },
    ...DATABASE_OPTIONS,
  },
  notes:
    'Without a TYPE it takes back the pause of everything; types that were paused by name stay so. What was not paused is left alone, which is no failure.',
  examples: ['aftercommit resume order.placed', 'aftercommit resume'],
  run: (call) => {
    const { values, given, terminal } = call
    const type = given[0] ?? '*'
    return withDatabase(call, async ({ store }) => {
      const outbox = createOutbox({ store, logger: auditLogger(terminal) })
      const resumed = await outbox.resume(type)
      await outbox.stop()
      const paused = await store.paused()
      const what = type === '*' ? 'everything' : safe(type)
      if (values.json) terminal.printJson({ resumed, paused })
      else terminal.print(resumed ? `Resumed: ${what}.` : `Nothing was paused: ${what}.`)
      if (paused.length > 0) terminal.say(`Still paused: ${paused.map(titleOf).join(', ')}`)
      return 0
    })
  },
})

function titleOf(type: string): string {
  return type === '*' ? 'everything (aftercommit resume)' : safe(type)
}
