// Rounds under which a planted bug shows soon. They are built like those of the campaign and are no part of it.
import { seen, sleep } from '../lib/waiting.js'
import { scenarios } from '../scenarios/index.js'
import { lineOf, strikeAt, victimOf } from '../scenarios/strikes.js'

const EVERYWHERE = ['postgres', 'mysql', 'mariadb', 'sqlite']

/** Registers a scenario, so that runRound() finds it by its name. */
function plantedScenario(name, more) {
  const scenario = { name, title: name, stores: EVERYWHERE, strikes: 1, doorbell: true, ...more }
  scenarios[name] ??= scenario
  return name
}

/** Waits for this number of journal lines of all processes together. */
async function activity(round, lines) {
  const count = () => round.crew.members.reduce((sum, member) => sum + member.lines().length, 0)
  return (await seen(() => count() >= lines, 8_000, 50)) ? `${lines} lines were written` : null
}

/** No faults. The producers handle the events that they publish. */
export const hotWork = plantedScenario('planted: hot work', {
  hot: true,
  strike: (round) => activity(round, 350),
})

/** No faults. The workers handle all events. */
export const coldWork = plantedScenario('planted: cold work', {
  hot: false,
  strike: (round) => activity(round, 500),
})

/** Handlers that take up to three leases. */
export const slowHandlers = plantedScenario('planted: slow handlers', {
  hot: false,
  settings: () => ({ leaseMs: 500, workMs: 1_200, pauseMs: 800 }),
  before: loseHope,
  strike: (round) => activity(round, 60),
})

/** A worker that is stopped with outcomes in its hands until another one has them. */
export const zombie = plantedScenario('planted: zombie', {
  hot: false,
  settings: () => ({ leaseMs: 600 }),
  async strike(round) {
    const order = {
      roles: ['worker'],
      point: round.random.pick(['after-handler', 'before-settle']),
      action: 'freeze',
    }
    const victim = await strikeAt(round, order)
    if (!victim) return null
    round.journal.write('froze', { child: victim.proc })
    await sleep(round.settings.leaseMs * 2)
    round.journal.write('thawed', { child: victim.proc })
    victim.signal('SIGCONT')
    return `${victim.proc} was stopped for two leases`
  },
})

/** Transactions that draw a low number and commit when the workers have gone on. */
export const lateCommits = plantedScenario('planted: late commits', {
  stores: ['postgres', 'mysql', 'mariadb'],
  hot: false,
  before: loseHope,
  async strike(round) {
    const member = await victimOf(round, ['producer'])
    if (!member) return null
    const hit = lineOf(member, ({ what, point }) => what === 'hit' && point === 'open for long', 4_000)
    member.order('dawdle', { ms: 700 })
    return (await hit) ? `${member.proc} committed late` : null
  },
})

/** Workers that are killed with an effect written and not committed. */
export const killedBeforeCommit = plantedScenario('planted: killed before commit', {
  hot: false,
  settings: () => ({ leaseMs: 600 }),
  strikes: 3,
  async strike(round) {
    const victim = await strikeAt(round, { roles: ['worker'], point: 'before-commit', action: 'kill' })
    await victim?.ended
    return victim ? `${victim.proc} killed itself before its commit` : null
  },
})

/** A server that takes no writes for three leases while handlers end: their outcomes wait when it comes back. */
export const outage = plantedScenario('planted: outage', {
  stores: ['postgres', 'mysql', 'mariadb'],
  hot: false,
  settings: () => ({ leaseMs: 500, workMs: 400 }),
  async strike(round) {
    round.journal.write('server', { state: 'read-only' })
    await round.database.readOnly(true)
    const refuses = await seen(() => round.database.refusesWrites(), 3_000)
    await sleep(1_500)
    await round.database.readOnly(false)
    round.journal.write('server', { state: 'up' })
    return refuses ? 'writes were refused for three leases' : null
  },
  heal: (round) => round.database.readOnly(false),
})

/** While it is drained nothing changes for so long: what is left is lost. */
const STILL_MS = 3_000
/** Number of lost leases from which on the round cannot end any more. */
const MANY_ABORTS = 20

/** A lost event would keep the round for a minute; the final state tells of it sooner. */
function loseHope(round) {
  const { database } = round
  const pending = database.pending.bind(database)
  let last = null
  let since = 0
  database.pending = async () => {
    const rows = await pending()
    const ids = rows.map(({ event_id }) => event_id).join()
    if (ids !== last) since = performance.now()
    last = ids
    return performance.now() - since > STILL_MS || aborts(round) > MANY_ABORTS ? [] : rows
  }
}

function aborts({ crew }) {
  return crew.members.flatMap((member) => member.lines()).filter(({ what }) => what === 'aborted').length
}
