import { optionsFromEnv } from '../../outbox/environment.js'
import { createOutbox } from '../../outbox.js'
import { defineCommand } from '../command.js'
import { DATABASE_OPTIONS, openDatabase } from '../database.js'
import { leave, reach, whenAborted } from '../ending.js'
import { type Close, HANDLERS_OPTION, registerHandlers } from '../handlers.js'
import { loggerFromEnv } from '../log.js'
import { hideUrlParts } from '../url-parts.js'
import { integerOption } from '../values.js'

export const work = defineCommand({
  summary: 'runs handlers, as a process of its own',
  isService: true,
  options: {
    ...HANDLERS_OPTION,
    ...DATABASE_OPTIONS,
    concurrency: {
      type: 'string',
      value: 'N',
      help: 'events handled at the same time; else OUTBOX_CONCURRENCY, else 4',
    },
  },
  notes:
    'It logs JSON lines on standard output, from the level of OUTBOX_LOG_LEVEL on. SIGINT and SIGTERM end it in order: no new work, handlers under way get OUTBOX_DRAIN_TIMEOUT_MS to finish, the rest is given back; the exit code is 0 then. A second signal ends it at once. All settings by environment: docs/configuration.md.',
  examples: ['aftercommit work --handlers src/handlers.js --concurrency 16'],
  run: async ({ values, signal }) => {
    const { dispatcher, ...options } = optionsFromEnv()
    const concurrency = values.concurrency
      ? { concurrency: integerOption('concurrency', values.concurrency, { min: 1 }) }
      : {}
    const logger = loggerFromEnv()
    const database = await openDatabase(values)
    const { store } = database
    const outbox = createOutbox({
      ...options,
      dispatcher: { ...dispatcher, ...concurrency },
      store,
      logger,
      redact: hideUrlParts,
    })
    let close: Close = () => {}
    try {
      close = await registerHandlers(values.handlers, outbox)
      const stopped = whenAborted(signal)
      if ((await Promise.race([reach(database), stopped])) === 'stopped') return 0
      await outbox.start()
      const about = { instance: outbox.instanceId, event_types: outbox.handledTypes }
      logger.info(about, 'the worker has started')
      await stopped
      logger.info({ instance: outbox.instanceId }, 'the worker is stopping')
      await outbox.stop()
      logger.info({ instance: outbox.instanceId }, 'the worker has stopped')
    } finally {
      try {
        await outbox.stop()
        await close()
      } finally {
        await leave(() => database.close())
      }
    }
    return 0
  },
})
