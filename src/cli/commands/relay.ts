import { parseArgs } from 'node:util'
import { jsonLogger } from '../../observe/logger.js'
import { createOutbox } from '../../outbox.js'
import { openBroker } from '../broker.js'
import { openDatabase } from '../database.js'
import { UsageError } from '../errors.js'
import type { Command } from '../main.js'

const HELP = `aftercommit relay: sends the events of an outbox to a broker

Usage: aftercommit relay --to URL [options]

  --to URL            redis://, nats://, amqp:// or kafka://host:9092,host:9092
  --database URL      postgres://, mysql:// or sqlite:FILE; else OUTBOX_DB_URL, else DATABASE_URL
  --events LIST       types and patterns, with commas between them; default '*'
  --destination NAME  the stream, exchange or topic; default 'events'
  --name NAME         identifies this relay among the handlers of an event; default 'relay'
  --batch-size N      events that are sent together, 1 to 1000; default 500
  --table NAME        the events table; default 'outbox_event'

An event is done when the broker has confirmed it. While the broker is down the relay waits. Several relays with the same
name share the work. SIGINT and SIGTERM end it in order. It logs JSON lines.
`

export const relay: Command = {
  summary: 'sends the events of an outbox to a broker',
  help: HELP,
  run: async (args) => {
    const { values } = parseArgs({
      args: [...args],
      options: {
        to: { type: 'string' },
        database: { type: 'string' },
        events: { type: 'string', default: '*' },
        destination: { type: 'string', default: 'events' },
        name: { type: 'string', default: 'relay' },
        'batch-size': { type: 'string', default: '500' },
        table: { type: 'string' },
      },
    })
    if (values.to === undefined)
      throw new UsageError('Nowhere to relay to. Give --to URL, for example --to nats://localhost.')
    const stopped = new Promise<void>((resolve) => {
      for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, resolve)
    })
    const logger = jsonLogger()
    const database = await openDatabase(values.database, values.table)
    const broker = await openBroker(values.to, { destination: values.destination, logger })
    const outbox = createOutbox({ store: database.store, logger })
    const events = values.events.split(',').map((type) => type.trim())
    outbox.relay(broker.bus, { events, name: values.name, batchSize: Number(values['batch-size']) })
    try {
      await outbox.start()
      logger.info({ events, to: broker.title }, 'the relay has started')
      await stopped
      await outbox.stop()
    } finally {
      await broker.close()
      await database.close()
    }
    return 0
  },
}
