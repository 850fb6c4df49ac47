// Processes that are there and do nothing, until somebody else has taken their work.
import { sleep } from '../lib/waiting.js'
import { EVERYWHERE, handlersIn, lineOf, strikeAt } from './strikes.js'

const POINTS = ['after-claim', 'in-handler', 'after-handler', 'before-settle']

/** So long that the lease is over and its rows are claimed by others. */
const pastTheLease = (round) => Math.round(round.settings.leaseMs * (1.2 + round.random.next() * 0.4))

const freeze = {
  name: 'freeze',
  title: 'SIGSTOP past the lease, then SIGCONT: a zombie that goes on where it was',
  stores: EVERYWHERE,
  strikes: 3,
  async strike(round) {
    const point = round.random.pick(POINTS)
    const ms = pastTheLease(round)
    const victim = await strikeAt(round, { roles: handlersIn(round), point, action: 'freeze' })
    if (!victim) return null
    round.journal.write('froze', { child: victim.proc })
    await sleep(ms)
    round.journal.write('thawed', { child: victim.proc })
    victim.signal('SIGCONT')
    return `${victim.proc} was stopped for ${ms} ms ${point}`
  },
}

const blockEventLoop = {
  name: 'block-event-loop',
  title: 'the event loop is blocked past the lease',
  stores: EVERYWHERE,
  strikes: 3,
  async strike(round) {
    const point = round.random.pick(POINTS)
    const ms = pastTheLease(round)
    const victim = await strikeAt(round, { roles: handlersIn(round), point, action: 'block', ms })
    if (!victim) return null
    await lineOf(victim, () => true, ms + 1_000)
    return `${victim.proc} blocked its event loop for ${ms} ms ${point}`
  },
}

/** The process is asked to end by a signal, and a new life takes its place. */
function ending(name, title, action, settings = {}) {
  return {
    name,
    title,
    stores: EVERYWHERE,
    strikes: 5,
    settings: () => settings,
    async strike(round) {
      const ms = round.random.between(1, 60)
      const order = { roles: handlersIn(round), point: 'in-handler', action, ms }
      const victim = await strikeAt(round, order)
      if (!victim) return null
      await victim.ended
      const stopped = victim.lines().some(({ what }) => what === 'stopped')
      return stopped ? `${victim.proc} was told to end in a handler, and did` : null
    },
  }
}

export default [
  freeze,
  blockEventLoop,
  ending('sigterm-draining', 'SIGTERM while handlers run', 'end', { workMs: 120, pauseMs: 200 }),
  ending('sigterm-twice', 'SIGTERM, and again while it drains', 'end twice', { workMs: 120, pauseMs: 200 }),
  ending('sigterm-stuck-handler', 'SIGTERM with a handler that never returns', 'stick', {
    drainTimeoutMs: 600,
  }),
]
