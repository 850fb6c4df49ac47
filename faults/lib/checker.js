import { attemptsOnlyGrow } from './checks/attempts.js'
import { duplicatesHaveReasons } from './checks/duplicates.js'
import { historyOf } from './checks/history.js'
import { finalIsFinal, onlyTheOwnerSettles, runsDoNotOverlap } from './checks/leases.js'
import { keysAreInOrder } from './checks/ordering.js'
import {
  effectsHappenOnce,
  everythingIsHandled,
  nothingUncommittedIsHandled,
  payloadsComeBack,
} from './checks/outcomes.js'
import { poisonStaysAlone } from './checks/poison.js'
import { nothingCrashes, stoppedProcessesExit } from './checks/processes.js'
import { storyTeller } from './checks/story.js'

export { storyText } from './checks/story.js'

export const INVARIANTS = {
  I1: everythingIsHandled,
  I2: nothingUncommittedIsHandled,
  I3: keysAreInOrder,
  I4: runsDoNotOverlap,
  I5: duplicatesHaveReasons,
  I6: onlyTheOwnerSettles,
  I7: attemptsOnlyGrow,
  I8: finalIsFinal,
  I9: effectsHappenOnce,
  I10: payloadsComeBack,
  I11: stoppedProcessesExit,
  I12: nothingCrashes,
  I14: poisonStaysAlone,
}

/**
 * Proves the invariants from the journals of all processes and the final state of the database, or tells the story of
 * each violation. It trusts the journals and the clock they share, and never the product.
 */
export function check(lines, state) {
  const history = historyOf(lines, state)
  const tell = storyTeller(history)
  const verdicts = {}
  const violations = []
  for (const [invariant, prove] of Object.entries(INVARIANTS)) {
    const found = prove(history)
    verdicts[invariant] = found.violations.length > 0 ? 'violated' : found.seen ? 'held' : 'not seen'
    for (const { eventId, text, ...where } of found.violations) {
      const id = eventId === undefined ? {} : { eventId }
      violations.push({ invariant, ...id, text, story: tell({ ...id, ...where }) })
    }
  }
  return { verdicts, violations, figures: figuresOf(history) }
}

function figuresOf(history) {
  const { lines, state, runs, lives, publications, business } = history
  const transactions = new Map(publications.map(({ tx, fate }) => [tx, fate]))
  const told = (fate) => [...transactions.values()].filter((outcome) => outcome === fate).length
  const count = (what) => lines.filter((line) => line.what === what).length
  const rows = (status) => state.rows.filter((row) => row.status === status).length
  return {
    committed: business.size,
    published: publications.length,
    rolledBack: told('rolled-back'),
    unknown: told('unknown') + told(null),
    handled: rows('DONE'),
    dead: rows('DEAD'),
    runs: runs.length,
    failedRuns: runs.filter(({ ok }) => ok === false).length,
    brokenOffRuns: runs.filter(({ ok }) => ok === null).length,
    duplicates: duplicatesHaveReasons(history).duplicates,
    effects: state.effects.length,
    lives: lives.size,
    killed: [...lives.values()].filter(({ exit }) => exit?.signal).length,
    freezes: count('froze'),
    cuts: count('cut'),
    hits: count('hit'),
    settlesFailed: count('settle-failed'),
  }
}
