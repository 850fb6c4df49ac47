// Clocks, late commits, poison, backlogs and cron jobs.
import { POISON_ATTEMPTS } from '../lib/cast.js'
import { seen, sleep } from '../lib/waiting.js'
import { EVERYWHERE, lineOf, SERVERS, strikeAt, victimOf } from './strikes.js'

const HOUR_MS = 3_600_000
/** What kills more processes than this is not going to be DEAD. */
const MOST_DEATHS = POISON_ATTEMPTS + 8

const clockSkew = {
  name: 'clock-skew',
  title: 'clocks of processes are an hour off, and jump',
  stores: EVERYWHERE,
  strikes: 5,
  isSkewed: true,
  async strike(round) {
    const member = await victimOf(round, ['producer', 'worker'])
    if (!member) return null
    const ms = round.random.pick([-HOUR_MS, HOUR_MS, -60_000, 24 * HOUR_MS, 0])
    const hit = lineOf(member, ({ what, point }) => what === 'hit' && point === 'clock', 2_000)
    member.order('jump', { ms })
    if (!(await hit)) return null
    await sleep(round.random.between(200, 500))
    return `the clock of ${member.proc} is now ${ms} ms off`
  },
}

const lateCommit = {
  name: 'late-commit',
  title: 'a transaction with a low number commits long after others with higher ones',
  stores: SERVERS,
  why: { sqlite: 'there is one writer at a time' },
  strikes: 4,
  async strike(round) {
    const member = await victimOf(round, ['producer'])
    if (!member) return null
    const ms = round.random.between(400, 1_500)
    const hit = lineOf(member, ({ what, point }) => what === 'hit' && point === 'open for long', ms + 3_000)
    member.order('dawdle', { ms })
    return (await hit) ? `${member.proc} committed after ${ms} ms` : null
  },
}

const poison = {
  name: 'poison',
  title: 'an event that kills its process every time, and one that fails for ever, beside others',
  stores: EVERYWHERE,
  strikes: 1,
  // Who is charged for the deaths beside it does not live long.
  settings: () => ({ leaseMs: 1_000, maxAttempts: 8, pauseMs: 250 }),
  /** The producers go on until both are DEAD, or so many have died that they never will be. */
  async strike(round) {
    const member = await victimOf(round, ['producer'])
    if (!member) return null
    const keys = round.random.shuffle(['key-7', null])
    const events = ['poison.fails', 'poison.kills'].map((type, at) => ({ type, key: keys[at] }))
    member.order('poison', { events })
    const deaths = () => round.deaths('poison')
    const isOver = async () => deaths() > 0 && (await round.database.leftOfPoison()).length === 0
    await seen(async () => deaths() > MOST_DEATHS || (await isOver()), 60_000, 250)
    const what = (await isOver()) ? 'and is DEAD' : 'and is still not DEAD'
    return deaths() > 1 ? `it killed ${deaths()} processes ${what}` : null
  },
}

const longBacklog = {
  name: 'long-backlog',
  title: 'no worker for a while, a backlog, and then a kill while it is worked off',
  stores: EVERYWHERE,
  strikes: 1,
  hot: false,
  settings: () => ({ batchSize: 100, workMs: 3 }),
  async strike(round) {
    const workers = round.crew.of('worker')
    for (const worker of workers) worker.staysAway = true
    await Promise.all(workers.map((worker) => worker.kill()))
    for (const producer of round.crew.of('producer')) producer.order('burst', { count: 500 })
    const committed = await seen(async () => (await round.database.pending()).length >= 20, 5_000)
    await sleep(2_000)
    for (const { name } of workers) round.crew.start(name)
    await round.crew.untilReady()
    const victim = await strikeAt(round, { roles: ['worker'], point: 'in-handler', action: 'kill' })
    await victim?.ended
    return committed && victim ? `two workers were away; ${victim.proc} killed itself in the backlog` : null
  },
}

/** Runs of scripts that have to end before the next events are published, and afterwards. */
const RUNS = 4

const manualConsumers = {
  name: 'manual-consumers',
  title:
    'cron jobs that consume by hand, some of them killed, beside workers that give unroutable events no grace',
  stores: EVERYWHERE,
  strikes: 4,
  crew: ['script-1', 'script-2'],
  settings: () => ({ unroutableGraceMs: 0, pauseMs: 250 }),
  async strike(round) {
    const runs = async () => {
      const before = round.runsOfScripts()
      return seen(() => round.runsOfScripts() >= before + RUNS, 20_000, 100)
    }
    if (!(await runs())) return null
    const member = await victimOf(round, ['producer'])
    member?.order('script events', { count: 10 })
    return member && (await runs()) ? `${round.runsOfScripts()} runs have ended` : null
  },
}

export default [clockSkew, lateCommit, poison, longBacklog, manualConsumers]
