import { seen } from '../lib/waiting.js'
import { EVERYWHERE, handlersIn, MYSQL_FAMILY, strikeAt } from './strikes.js'

const WORK = handlersIn
const PUBLISHING = () => ['producer']
/** An exactly-once handler has a transaction too. */
const TRANSACTIONS = () => ['producer', 'producer', 'worker']

function killAt(name, title, roles) {
  const point = name.slice('kill-'.length)
  return {
    name,
    title,
    stores: EVERYWHERE,
    strikes: 7,
    async strike(round) {
      const victim = await strikeAt(round, { roles: roles(round), point, action: 'kill' })
      if (!victim) return null
      await victim.ended
      return `${victim.proc} killed itself ${point}`
    },
  }
}

const inMigrate = {
  name: 'kill-in-migrate',
  title: 'SIGKILL while it creates the tables, after one statement or another',
  stores: EVERYWHERE,
  strikes: 4,
  /** The first ones die in a database that has no tables yet. */
  async before(round) {
    round.migrations = []
    for (let n = 0; n < 4; n++) {
      const after = round.random.between(1, MYSQL_FAMILY.includes(round.store) ? 12 : 5)
      // The one before may have come so far that there is little left to do.
      const proof = (await diesMigrating(round, after)) ?? (await diesMigrating(round, 1 + (after % 3)))
      round.migrations.push(proof)
    }
  },
  async strike(round, n) {
    return round.migrations[n - 1]
  },
}

async function diesMigrating(round, after) {
  const member = round.crew.start('worker-3', { armed: { point: 'in-migrate', action: 'kill', after } })
  member.isDoomed = true
  member.staysAway = true
  const isHit = () => member.lines().some(({ what }) => what === 'hit')
  await seen(() => isHit() || member.isReady, 8_000)
  member.kill()
  await member.ended
  return isHit() ? `${member.proc} killed itself behind statement ${after} of migrate()` : null
}

const calm = {
  name: 'calm',
  title: 'no fault at all: what the others are compared with',
  stores: EVERYWHERE,
  strikes: 1,
  async strike(round) {
    const committed = () => round.crew.of('producer').flatMap((producer) => producer.lines()).length > 400
    return (await seen(committed, 5_000, 100)) ? 'nothing was done' : null
  },
}

export default [
  calm,
  killAt('kill-after-append', 'SIGKILL with a row written and the transaction open', PUBLISHING),
  killAt(
    'kill-before-commit',
    'SIGKILL right before COMMIT, of a publisher or an exactly-once handler',
    TRANSACTIONS,
  ),
  killAt('kill-after-commit', 'SIGKILL right behind COMMIT, before the process hears of it', TRANSACTIONS),
  killAt('kill-after-claim', 'SIGKILL with rows claimed and none begun', WORK),
  killAt('kill-in-handler', 'SIGKILL inside a handler', WORK),
  killAt('kill-after-handler', 'SIGKILL between the end of a handler and the settle', WORK),
  killAt('kill-before-settle', 'SIGKILL right before outcomes are written', WORK),
  killAt('kill-after-settle', 'SIGKILL when outcomes are written and nobody has seen the answer', WORK),
  inMigrate,
]
