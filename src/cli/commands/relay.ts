import { parseArgs } from 'node:util'
import { jsonLogger } from '../../observe/logger.js'
import { createOutbox } from '../../outbox.js'
import { type Broker, openBroker } from '../broker.js'
import { openDatabase } from '../database.js'
import { UsageError } from '../errors.js'
import type { Command } from '../main.js'

const HELP = `aftercommit relay: sends the events of an outbox to a broker

Usage: aftercommit relay --to URL [options]

  --to URL            redis:// or rediss://, nats:// or tls://, amqp:// or amqps://, kafka://host:9092,host:9092
  --database URL      postgres://, mysql:// or sqlite:FILE; else OUTBOX_DB_URL, else DATABASE_URL
  --events LIST       types and patterns, with commas between them; default '*'
  --destination NAME  the stream, exchange or topic; default 'events'
  --name NAME         identifies this relay among the handlers of an event; default 'relay'
  --batch-size N      events that are sent together, 1 to 1000; default 500
  --table NAME        the events table; default 'outbox_event'

An event is done when the broker has confirmed it. While the broker is down the relay waits. Several relays with the same
name, events and broker share the work. Whatever else handles these events must run in the same process: two relays to two
brokers, or a relay beside handlers elsewhere, would each get a part of them. SIGINT and SIGTERM end it in order. It logs
JSON lines.
`

interface Values {
  readonly events: string
  readonly name: string
  readonly destination: string
  readonly 'batch-size': string
}

/** Before anything is connected. */
function checked(values: Values): { events: string[]; name: string; batchSize: number } {
  const batchSize = Number(values['batch-size'])
  if (!Number.isInteger(batchSize) || batchSize < 1 || batchSize > 1_000)
    throw new UsageError('--batch-size must be a whole number from 1 to 1000.')
  const events = values.events.split(',').map((type) => type.trim())
  if (events.some((type) => type === '') || new Set(events).size < events.length)
    throw new UsageError("--events must be types and patterns, each once: 'order.*,payment.received'.")
  if (values.name === '') throw new UsageError('--name must not be empty.')
  if (!/^[\w.-]{1,100}$/.test(values.destination))
    throw new UsageError('--destination must be 1 to 100 letters, digits, dots, dashes or underscores.')
  return { events, name: values.name, batchSize }
}

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
    const options = checked(values)
    const stopped = new Promise<'stopped'>((resolve) => {
      for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => resolve('stopped'))
    })
    const logger = jsonLogger()
    const database = await openDatabase(values.database, values.table)
    let broker: Broker | undefined
    try {
      logger.info({}, 'connecting to the broker')
      const opening = openBroker(values.to, { destination: values.destination, logger })
      const opened = await Promise.race([opening, stopped])
      if (opened === 'stopped') return 0
      broker = opened
      const outbox = createOutbox({ store: database.store, logger })
      outbox.relay(broker.bus, options)
      await outbox.start()
      logger.info({ events: options.events, to: broker.title }, 'the relay has started')
      await stopped
      await outbox.stop()
    } finally {
      await broker?.close()
      await database.close()
      // A client that is still connecting would keep the process alive.
      setTimeout(() => process.exit(), 1_000).unref()
    }
    return 0
  },
}
