// A relay process from PostgreSQL to Redis that is killed at any moment.
import { createOutbox, silentLogger } from 'aftercommit'
import { postgresStore } from 'aftercommit/postgres'
import { redisBus } from 'aftercommit/redis'
import pg from 'pg'
import { createClient } from 'redis'

const { url, redisUrl, stream } = JSON.parse(process.argv[2])
const pool = new pg.Pool({ connectionString: url, max: 5 })
pool.on('error', () => {})
const redis = createClient({ url: redisUrl })
redis.on('error', () => {})
await redis.connect()
process.on('disconnect', () => process.exit())

const outbox = createOutbox({
  store: postgresStore(pool),
  logger: silentLogger,
  retry: { maxAttempts: 1_000 },
  poller: { leaseMs: 400, pollIntervalMs: 40 },
})
outbox.relay(redisBus(redis, { stream, logger: silentLogger }), { events: ['thing.*'] })
await outbox.start()
process.send('ready')
