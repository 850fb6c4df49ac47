// All rounds together, in figures.

const COUNTS = ['kills', 'cuts', 'cutsAfterCommit', 'restarts', 'zombies', 'missed']
const FIGURES = ['committed', 'rolledBack', 'unknown', 'handled', 'dead', 'duplicates', 'runs']

export function totalsOf(reports) {
  const sum = (from) => reports.reduce((total, report) => total + (from(report) ?? 0), 0)
  const counts = Object.fromEntries(COUNTS.map((name) => [name, sum((report) => report[name])]))
  const figures = Object.fromEntries(FIGURES.map((name) => [name, sum((report) => report.figures[name])]))
  const recoveries = reports.flatMap((report) => report.recoveriesMs).sort((a, b) => a - b)
  return {
    rounds: reports.length,
    failed: reports.filter(({ isGood }) => !isGood).length,
    strikes: sum(({ strikes }) => strikes.length),
    ...counts,
    ...figures,
    recoveryMs: { p50: recoveries[Math.floor(recoveries.length / 2)] ?? 0, max: recoveries.at(-1) ?? 0 },
    verdicts: verdictsOf(reports),
    hits: hitsOf(reports),
  }
}

/** Returns `violated` for an invariant with at least one violation, and `not seen` only if no round has seen it. */
function verdictsOf(reports) {
  const verdicts = {}
  for (const report of reports) {
    for (const [invariant, verdict] of Object.entries(report.verdicts)) {
      verdicts[invariant] ??= { verdict: 'not seen', held: 0, violated: 0 }
      const total = verdicts[invariant]
      if (verdict === 'held') total.held++
      if (verdict === 'violated') total.violated++
      total.verdict = total.violated > 0 ? 'violated' : total.held > 0 ? 'held' : 'not seen'
    }
  }
  return verdicts
}

function hitsOf(reports) {
  const hits = {}
  for (const report of reports) {
    for (const [point, count] of Object.entries(report.hits)) {
      const name = point.startsWith('session ended') ? 'session ended' : point
      hits[name] = (hits[name] ?? 0) + count
    }
  }
  return hits
}

/** By store and fault. */
export function groupsOf(reports) {
  const groups = new Map()
  for (const report of reports) {
    const name = `${report.store} ${report.fault}`
    if (!groups.has(name)) groups.set(name, { store: report.store, fault: report.fault, reports: [] })
    groups.get(name).reports.push(report)
  }
  const sorted = [...groups.values()].sort((a, b) =>
    `${a.fault} ${a.store}`.localeCompare(`${b.fault} ${b.store}`),
  )
  return sorted.map(({ store, fault, reports: some }) => ({ store, fault, ...totalsOf(some) }))
}
