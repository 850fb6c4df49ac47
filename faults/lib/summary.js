// What a round is worth to the report: its verdict, what happened in it, and how fast everything recovered.

/** A round is good when all invariants held and every strike hit what it was meant for. */
export function summaryOf(lines, { verdicts, violations, figures }, { strikes }) {
  const count = (what, matches = () => true) =>
    lines.filter((line) => line.what === what && matches(line)).length
  const missed = strikes.filter(({ proof }) => proof === null).length
  return {
    verdicts,
    violations,
    figures,
    kills: count('exited', ({ signal, meant }) => signal === 'SIGKILL' && meant),
    cuts: count('cut'),
    cutsAfterCommit: count('cut', ({ point }) => point === 'after COMMIT, before its answer'),
    restarts: count('server', ({ state }) => state === 'restarted'),
    zombies: count('thawed'),
    hits: hitsOf(lines),
    missed,
    recoveriesMs: recoveriesOf(lines),
    isGood: violations.length === 0 && missed === 0,
  }
}

/** How often each step was hit. */
function hitsOf(lines) {
  const hits = {}
  for (const { what, point } of lines) {
    if (what !== 'hit' && what !== 'cut') continue
    hits[point] = (hits[point] ?? 0) + 1
  }
  return hits
}

/** For each strike: from its end until the last of what was committed and unsettled at that moment was settled. */
function recoveriesOf(lines) {
  const committedAt = commitsOf(lines)
  const settledAt = settlesOf(lines)
  return lines
    .filter(({ what }) => what === 'over')
    .map(({ at }) => {
      let last = at
      for (const [eventId, committed] of committedAt) {
        const settled = settledAt.get(eventId)
        if (committed <= at && settled !== undefined && settled > last) last = settled
      }
      return Math.round(last - at)
    })
}

function commitsOf(lines) {
  const ends = new Map(lines.filter(({ what }) => what === 'committed').map(({ tx, at }) => [tx, at]))
  const published = lines.filter(({ what, undone }) => what === 'published' && !undone)
  return new Map(published.map(({ eventId, tx, at }) => [eventId, ends.get(tx) ?? at]))
}

/** When each event got its last outcome. */
function settlesOf(lines) {
  const outcomes = new Map()
  const settled = new Map()
  for (const line of lines) {
    if (line.what === 'settling') outcomes.set(`${line.proc} ${line.n}`, new Map(finals(line.settlements)))
    if (line.what !== 'settled') continue
    const final = outcomes.get(`${line.proc} ${line.n}`)
    for (const eventId of line.events) if (final?.has(eventId)) settled.set(eventId, line.at)
  }
  return settled
}

function finals(settlements) {
  return settlements
    .filter(([, , outcome]) => outcome === 'done' || outcome === 'dead')
    .map(([eventId, , outcome]) => [eventId, outcome])
}
