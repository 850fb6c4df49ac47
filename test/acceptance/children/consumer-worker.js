// A consumer process, from Redis to PostgreSQL, that is killed at any moment.
import { createOutbox, silentLogger } from 'aftercommit'
import { exactlyOnce } from 'aftercommit/inbox'
import { postgresStore } from 'aftercommit/postgres'
import { redisBus } from 'aftercommit/redis'
import pg from 'pg'
import { createClient } from 'redis'

const { url, redisUrl, stream, marked } = JSON.parse(process.argv[2])
const pool = new pg.Pool({ connectionString: url, max: 10 })
pool.on('error', () => {})
const redis = createClient({ url: redisUrl })
redis.on('error', () => {})
await redis.connect()
process.on('disconnect', () => process.exit())

const outbox = createOutbox({ store: postgresStore(pool), logger: silentLogger })
const bus = redisBus(redis, {
  stream,
  group: 'effects',
  takeoverMs: 400,
  retry: { maxAttempts: 1_000 },
  logger: silentLogger,
})

async function effect(event, { tx }) {
  await tx.client.query('insert into effect values ($1, $2)', [event.eventId, event.payload.number])
  await tx.publish({ type: 'effect.done', payload: { of: event.eventId } })
}

const count = marked
  ? exactlyOnce({ name: 'count', handle: effect }, outbox)
  : {
      name: 'count',
      async handle(event) {
        await outbox.transaction((tx) => effect(event, { tx }))
        // Between the commit and the broker's hearing of it.
        process.send('committed')
        await new Promise(() => {})
      },
    }
bus.subscribe('thing.*', count)
await bus.start()
process.send('ready')
