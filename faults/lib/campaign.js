// The plan by seed, and the rounds one after the other.
import path from 'node:path'
import { scenarios } from '../scenarios/index.js'
import { endSpares, fillSpares } from './crew.js'
import { randomOf } from './random.js'
import { runRound } from './round.js'
import { openStore } from './stores/index.js'

const ROOT = path.resolve(import.meta.dirname, '../..')

/**
 * Endless: which store and which fault comes when. Every fault has its turn before one has its second, and the stores
 * take turns. Round n has the seed plus n, so that any of them can be repeated alone.
 */
export function* planOf({ stores, faults, seed }) {
  const random = randomOf(seed)
  const decks = new Map(stores.map((store) => [store, []]))
  const able = stores.filter((store) => applicable(store, faults).length > 0)
  if (able.length === 0) throw new Error('none of these faults applies to this store; see --list')
  for (let n = 0; ; n++) {
    const store = able[n % able.length]
    const deck = decks.get(store)
    if (deck.length === 0) deck.push(...random.shuffle(applicable(store, faults)))
    yield { store, fault: deck.pop(), seed: seed + n }
  }
}

function applicable(store, faults) {
  return faults.filter((name) => scenarios[name].stores.includes(store))
}

/**
 * Runs the plan until the rounds or the minutes are over, or `signal` fires. `onRound` hears of each round that begins,
 * and `onReport` of its report; both may be left out. Answers all reports.
 */
export async function runCampaign({
  stores,
  faults,
  seed,
  rounds,
  minutes,
  signal,
  onRound,
  onReport,
  ...given
}) {
  const packageDir = path.resolve(given.package ?? ROOT)
  const servers = new Map()
  const reports = []
  const until = performance.now() + minutes * 60_000
  try {
    fillSpares(packageDir)
    for (const planned of planOf({ stores, faults, seed })) {
      if (reports.length >= rounds || performance.now() >= until || signal?.aborted) break
      if (!servers.has(planned.store)) servers.set(planned.store, await openStore(planned.store))
      onRound?.({ ...planned, n: reports.length + 1 })
      const report = await reportOf({ ...planned, packageDir, server: servers.get(planned.store), signal })
      if (signal?.aborted && report.error) break
      reports.push(report)
      onReport?.(report)
    }
  } finally {
    endSpares()
    await Promise.all([...servers.values()].map((server) => server.stop()))
  }
  return reports
}

/** A round that could not be run is a failed one. */
async function reportOf(round) {
  try {
    return (await runRound(round)).report
  } catch (error) {
    const { store, fault, seed } = round
    const nothing = { verdicts: {}, violations: [], figures: {}, hits: {}, strikes: [], recoveriesMs: [] }
    const counts = { kills: 0, cuts: 0, cutsAfterCommit: 0, restarts: 0, zombies: 0, missed: 0, tookMs: 0 }
    return { store, fault, seed, ...nothing, ...counts, isGood: false, error: error?.stack ?? String(error) }
  }
}
