import { optionsFromEnv } from '../../outbox/environment.js'
import { createOutbox } from '../../outbox.js'
import { type Broker, openBroker } from '../broker.js'
import { defineCommand } from '../command.js'
import { DATABASE_OPTIONS, openDatabase } from '../database.js'
import { leave, reach, whenAborted } from '../ending.js'
import { UsageError } from '../errors.js'
import { loggerFromEnv } from '../log.js'
import { hideUrlParts } from '../url-parts.js'
import { integerOption } from '../values.js'

interface Values {
  readonly events: string
  readonly name: string
  readonly destination: string
  readonly 'batch-size': string
}

/** Before anything is connected. */
function checked(values: Values): { events: string[]; name: string; batchSize: number } {
  const batchSize = integerOption('batch-size', values['batch-size'], { min: 1, max: 1_000 })
  const events = values.events.split(',').map((type) => type.trim())
  if (events.some((type) => type === '') || new Set(events).size < events.length)
    throw new UsageError("--events must be types and patterns, each once: 'order.*,payment.received'.")
  if (values.name === '') throw new UsageError('--name must not be empty.')
  if (!/^[\w.-]{1,100}$/.test(values.destination))
    throw new UsageError('--destination must be 1 to 100 letters, digits, dots, dashes or underscores.')
  return { events, name: values.name, batchSize }
}

export const relay = defineCommand({
  summary: 'sends the events of an outbox to a broker',
  isService: true,
  options: {
    to: {
      type: 'string',
      value: 'URL',
      help: 'redis:// or rediss://, nats:// or tls://, amqp:// or amqps://, kafka://host:9092,host:9092',
    },
    ...DATABASE_OPTIONS,
    events: {
      type: 'string',
      value: 'LIST',
      default: '*',
      help: 'types and patterns, with commas between them',
    },
    destination: {
      type: 'string',
      value: 'NAME',
      default: 'events',
      help: 'the stream, exchange or topic',
    },
    name: {
      type: 'string',
      value: 'NAME',
      default: 'relay',
      help: 'identifies this relay among the handlers of an event',
    },
    'batch-size': {
      type: 'string',
      value: 'N',
      default: '500',
      help: 'events that are sent together, 1 to 1000',
    },
  },
  notes:
    'An event is done when the broker has confirmed it. While the broker is down the relay waits. Several relays with the same name, events and broker share the work. Whatever else handles these events must run in the same process: two relays to two brokers, or a relay beside handlers elsewhere, would each get a part of them. SIGINT and SIGTERM end it in order. It logs JSON lines.',
  examples: ["aftercommit relay --to nats://localhost --events 'order.*'"],
  run: async ({ values, signal }) => {
    if (values.to === undefined)
      throw new UsageError('Nowhere to relay to. Give --to URL, for example --to nats://localhost.')
    const options = checked(values)
    const stopped = whenAborted(signal)
    const logger = loggerFromEnv()
    const database = await openDatabase(values)
    let broker: Broker | undefined
    try {
      logger.info({}, 'connecting to the broker')
      const opening = openBroker(values.to, { destination: values.destination, logger })
      const opened = await Promise.race([opening, stopped])
      if (opened === 'stopped') return 0
      broker = opened
      if ((await Promise.race([reach(database), stopped])) === 'stopped') return 0
      const outbox = createOutbox({
        ...optionsFromEnv(),
        store: database.store,
        logger,
        redact: hideUrlParts,
      })
      outbox.relay(broker.bus, options)
      await outbox.start()
      logger.info({ events: options.events, to: broker.title }, 'the relay has started')
      await stopped
      await outbox.stop()
    } finally {
      await broker?.close()
      await leave(() => database.close())
    }
    return 0
  },
})
