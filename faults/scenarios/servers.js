// What happens to the server, and to its sessions.
import { seen, sleep } from '../lib/waiting.js'
import { EVERYWHERE, MYSQL_FAMILY, NO_SERVER, SERVERS } from './strikes.js'

const backendTerminated = {
  name: 'backend-terminated',
  title: 'sessions are ended by the administrator',
  stores: SERVERS,
  why: NO_SERVER,
  strikes: 6,
  async strike(round) {
    const count = round.random.between(1, 5)
    const ended = await round.database.terminate((all) => round.random.shuffle(all).slice(0, count))
    for (const { session, ...whose } of ended)
      round.journal.write('cut', { point: `session ended: ${session}`, ...whose })
    return ended.length > 0 ? `${ended.length} sessions ended` : null
  },
}

function serverEnds(name, title, strikes, end) {
  return {
    name,
    title,
    stores: SERVERS,
    why: NO_SERVER,
    strikes,
    async strike(round) {
      const { server } = round.server
      const before = server.pid
      round.journal.write('server', { state: 'down' })
      await end(server, round)
      round.journal.write('server', { state: 'restarted' })
      return server.pid !== undefined && server.pid !== before
        ? `the server is now process ${server.pid}`
        : null
    },
  }
}

const restart = serverEnds('server-restart', 'the server is restarted', 2, (server) => server.restart())

const crash = serverEnds(
  'server-crash',
  'SIGKILL of the server, some time without it, recovery',
  2,
  async (server, round) => {
    await server.kill()
    await sleep(round.random.between(100, 1_000))
    await server.start()
  },
)

const readOnly = {
  name: 'server-read-only',
  title: 'the server refuses to write for a while, as after a failover',
  stores: SERVERS,
  why: NO_SERVER,
  strikes: 2,
  async strike(round) {
    round.journal.write('server', { state: 'read-only' })
    await round.database.readOnly(true)
    const refuses = await seen(() => round.database.refusesWrites(), 3_000)
    await sleep(round.random.between(300, 1_500))
    await round.database.readOnly(false)
    round.journal.write('server', { state: 'up' })
    return refuses ? 'writes were refused' : null
  },
  heal: (round) => round.database.readOnly(false),
}

const connectionsUsedUp = {
  name: 'connections-used-up',
  title: 'all sessions are ended and no new ones are to be had',
  stores: SERVERS,
  why: NO_SERVER,
  strikes: 2,
  async strike(round) {
    round.journal.write('server', { state: 'no connections' })
    await round.database.limitConnections(true)
    const refuses = await seen(() => round.database.refusesConnections(), 3_000)
    await sleep(round.random.between(300, 1_500))
    await round.database.limitConnections(false)
    round.journal.write('server', { state: 'up' })
    return refuses ? 'connections were refused' : null
  },
  heal: (round) => round.database.limitConnections(false),
}

const LOCK_TIMEOUTS = ['set session innodb_lock_wait_timeout = 1', 'set session lock_wait_timeout = 1']

const isMysql = (round) => MYSQL_FAMILY.includes(round.store)

const TIMEOUTS = {
  postgres: {
    options: '-c statement_timeout=300 -c lock_timeout=150 -c idle_in_transaction_session_timeout=250',
  },
  // MySQL has one idle timeout for all sessions, MariaDB has one for open transactions.
  mysql: { session: [...LOCK_TIMEOUTS, 'set session wait_timeout = 1'] },
  mariadb: { session: [...LOCK_TIMEOUTS, 'set session idle_transaction_timeout = 1'] },
}

const timeouts = {
  name: 'timeouts',
  title: 'short statement, lock and idle timeouts, a table that is locked, and transactions that dawdle',
  stores: SERVERS,
  why: { sqlite: 'it has no such timeouts; waiting for the lock is sqlite-busy' },
  strikes: 3,
  settings: (round) => ({ driver: TIMEOUTS[round.store] }),
  async strike(round) {
    const [producer] = round.crew.of('producer')
    producer.order('dawdle', { ms: isMysql(round) ? 1_500 : 600 })
    round.journal.write('server', { state: 'locked' })
    await round.database.lockEvents(round.random.between(500, isMysql(round) ? 2_000 : 1_200))
    round.journal.write('server', { state: 'up' })
    const wentWrong = ({ what, reason, error }) =>
      (what === 'settle-failed' || what === 'rolled-back' || what === 'log') &&
      /time|closed|lost/i.test(reason ?? error)
    const failures = () => round.crew.members.flatMap((member) => member.lines()).filter(wentWrong).length
    const found = await seen(failures, 2_000, 50)
    return found ? `${found} statements ran into a timeout` : null
  },
}

const SERIALIZABLE = ['set session transaction isolation level serializable']

const deadlocks = {
  name: 'deadlocks',
  title: 'producers at serializable isolation lock two aggregates in opposite order',
  stores: SERVERS,
  why: { sqlite: 'there is one writer at a time' },
  strikes: 5,
  settings: (round) => ({
    driver: {
      postgres: { options: '-c default_transaction_isolation=serializable' },
      mysql: { session: SERIALIZABLE },
      mariadb: { session: SERIALIZABLE },
    }[round.store],
  }),
  async strike(round) {
    const ready = () => round.crew.of('producer').every((producer) => producer.isReady)
    await seen(ready, 5_000)
    // On a busy machine the two may miss each other.
    for (let attempt = 1; attempt <= 4; attempt++) {
      const found = await tangled(round)
      if (found) return `${found} transactions were refused`
    }
    return null
  },
}

async function tangled(round) {
  const producers = round.crew.of('producer')
  const keys = round.random.shuffle(['key-0', 'key-1', 'key-2']).slice(0, 2)
  const isConflict = ({ what, point }) => what === 'hit' && point === 'conflict'
  const conflicts = () => producers.flatMap((producer) => producer.lines()).filter(isConflict).length
  const before = conflicts()
  const ms = round.random.between(60, 200)
  for (const [at, producer] of producers.entries()) {
    producer.order('tangle', { keys: at === 0 ? keys : [...keys].reverse(), ms })
  }
  return seen(() => conflicts() - before, 2_000, 25)
}

const sqliteBusy = {
  name: 'sqlite-busy',
  title: 'another process holds the write lock again and again',
  stores: ['sqlite'],
  why: {
    postgres: 'writers lock rows; see timeouts and deadlocks',
    mysql: 'writers lock rows; see timeouts and deadlocks',
    mariadb: 'writers lock rows; see timeouts and deadlocks',
  },
  strikes: 5,
  async strike(round) {
    const ms = round.random.between(100, 1_600)
    const errors = () =>
      round.crew.members.flatMap((member) => member.lines()).filter(({ what }) => what === 'busy')
    let before = 0
    round.journal.write('server', { state: 'locked' })
    await round.database.lockWrites(ms, () => {
      before = errors().length
    })
    round.journal.write('server', { state: 'up' })
    const found = errors().length - before
    return found > 0 ? `locked for ${ms} ms, and found so ${found} times` : null
  },
}

const vacuumPinned = {
  name: 'vacuum-pinned',
  title: 'a transaction that stays open keeps old versions of rows from being removed',
  stores: EVERYWHERE,
  strikes: 2,
  async strike(round) {
    const ms = round.random.between(1_500, 2_500)
    const kept = await round.database.pinVacuum(ms)
    return kept ? `a snapshot was held for ${ms} ms, and ${kept} for its sake` : null
  },
}

const doorbellFull = {
  name: 'doorbell-full',
  title: 'the queue of notifications is full',
  doorbell: true,
  stores: ['postgres'],
  why: { mysql: 'it has no doorbell', mariadb: 'it has no doorbell', sqlite: 'it has no doorbell' },
  strikes: 2,
  async strike(round) {
    const isFull = await round.database.fillDoorbell(round.random.between(500, 1_200))
    if (!isFull) return null
    round.journal.write('hit', { point: 'doorbell', action: 'too many notifications in the queue' })
    return 'a notification was refused'
  },
}

export default [
  backendTerminated,
  restart,
  crash,
  readOnly,
  connectionsUsedUp,
  timeouts,
  deadlocks,
  sqliteBusy,
  vacuumPinned,
  doorbellFull,
]
