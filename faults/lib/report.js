// The report as text, as JSON and as Markdown.
import { scenarios } from '../scenarios/index.js'
import { storyText } from './checks/story.js'
import { STORES } from './stores/index.js'
import { groupsOf, totalsOf } from './totals.js'

const INVARIANTS = {
  I1: 'every committed event is handled, or dead with a reason',
  I2: 'nothing that was rolled back is ever handled',
  I3: 'first deliveries of a key follow the order of its commits',
  I4: 'runs of one event never overlap while its lease holds',
  I5: 'a duplicate comes only after a crash, a lost lease or an unknown answer',
  I6: 'an outcome counts only with the current lease',
  I7: 'attempts only grow; what kills its process ends dead, its neighbours do not',
  I8: 'final outcomes are final',
  I9: 'one effect per exactly-once handler and event',
  I10: 'payloads come back equal',
  I11: 'after stop() the process ends by itself',
  I12: 'no uncaught error, no exit that was not meant',
  I14: 'one poison event stalls its own key at most',
}

/** What a round cannot show, and the tests that do. */
export const SHOWN_BY_TESTS = {
  I13: {
    what: 'memory and connections are bounded, whatever the backlog',
    tests: ['test/faults/small-heap.test.ts'],
  },
  I15: {
    what: 'a broker is answered after our own commit, and never before',
    tests: ['test/acceptance/inbox/kills.test.ts', 'test/acceptance/relay/kills.test.ts'],
  },
}

/** In the order of their numbers: what the rounds say of each invariant, or which test does. */
function verdictsOf(totals) {
  const unseen = { verdict: 'not seen', held: 0, violated: 0 }
  const judged = Object.entries(INVARIANTS).map(([name, what]) => {
    return { name, what, ...(totals.verdicts[name] ?? unseen) }
  })
  const tested = Object.entries(SHOWN_BY_TESTS).map(([name, { what, tests }]) => {
    return { name, what, verdict: `shown by test ${tests.join(', ')}` }
  })
  return [...judged, ...tested].sort((a, b) => Number(a.name.slice(1)) - Number(b.name.slice(1)))
}

export function repeatCommand({ store, fault, seed }) {
  return `npm run faults -- --store ${store} --fault ${fault} --seed ${seed} --rounds 1`
}

/** What went wrong in a round, with the story of each event concerned. */
export function failureText(report) {
  const lines = [`FAILED: ${report.fault} on ${report.store}, seed ${report.seed}`]
  if (report.error) lines.push(report.error)
  for (const { n, proof } of report.strikes) if (proof === null) lines.push(`strike ${n} missed its step`)
  for (const violation of report.violations.slice(0, 3)) {
    lines.push(storyText(violation).replaceAll('\n', '\n    '))
  }
  if (report.violations.length > 3) lines.push(`… and ${report.violations.length - 3} more violations`)
  lines.push(`repeat it: ${repeatCommand(report)}`)
  return lines.join('\n')
}

export function toText(reports, about) {
  const totals = totalsOf(reports)
  return [
    ...table(HEAD, groupsOf(reports).map(cellsOf)),
    '',
    ...factsOf(totals, about),
    '',
    ...verdictsOf(totals).map(({ name, what, verdict, held, violated }) => {
      if (held === undefined) return `${name.padEnd(4)} ${verdict}: ${what}`
      const rounds = violated > 0 ? `in ${violated} rounds` : held > 0 ? `in ${held} rounds` : ''
      return `${name.padEnd(4)} ${verdict.padEnd(9)} ${rounds.padEnd(14)} ${what}`
    }),
  ].join('\n')
}

const HEAD = [
  ...['fault', 'store', 'rounds', 'failed', 'strikes', 'missed', 'events', 'kills', 'cuts', 'duplicates'],
  'recovery p50 / max',
]

function cellsOf(group) {
  const { fault, store, rounds, failed, strikes, missed, committed, kills, cuts, duplicates, recoveryMs } =
    group
  const recovery = `${recoveryMs.p50} / ${recoveryMs.max} ms`
  return [fault, store, rounds, failed, strikes, missed, committed, kills, cuts, duplicates, recovery].map(
    String,
  )
}

function factsOf(totals, { seconds, seed }) {
  const { recoveryMs } = totals
  const hits = Object.entries(totals.hits).sort()
  return [
    `${totals.rounds} rounds in ${Math.round(seconds)} s, ${totals.failed} failed; seed ${seed}`,
    `${totals.committed} events committed, ${totals.handled} handled, ${totals.dead} dead, ${totals.rolledBack} transactions rolled back, ${totals.unknown} of unknown outcome`,
    `${totals.strikes} strikes: ${totals.kills} kills, ${totals.cuts} cuts (${totals.cutsAfterCommit} after COMMIT), ${totals.restarts} restarts, ${totals.zombies} zombies; ${totals.missed} missed their step`,
    `${totals.runs} runs of handlers, ${totals.duplicates} of them duplicates; recovery p50 ${recoveryMs.p50} ms, max ${recoveryMs.max} ms`,
    `steps that were hit: ${hits.map(([point, count]) => `${point} ${count}`).join(', ') || 'none'}`,
  ]
}

function table(head, rows) {
  const widths = head.map((title, at) => Math.max(title.length, ...rows.map((row) => row[at].length)))
  const draw = (cells) =>
    cells.map((cell, at) => (at < 2 ? cell.padEnd(widths[at]) : cell.padStart(widths[at]))).join('  ')
  return [draw(head), widths.map((width) => '─'.repeat(width)).join('  '), ...rows.map(draw)]
}

export function toMarkdown(reports, about) {
  const totals = totalsOf(reports)
  const row = (cells) => `| ${cells.join(' | ')} |`
  const verdicts = verdictsOf(totals).map(({ name, what, verdict, held = '', violated = '' }) =>
    row([name, what, verdict, held, violated]),
  )
  return [
    ...factsOf(totals, about).map((fact) => `- ${fact}`),
    '',
    row(['', 'invariant', 'verdict', 'rounds held', 'rounds violated']),
    row(['---', '---', '---', '--:', '--:']),
    ...verdicts,
    '',
    row(HEAD),
    row(HEAD.map((_, at) => (at < 2 ? '---' : '--:'))),
    ...groupsOf(reports).map((group) => row(cellsOf(group))),
    '',
  ].join('\n')
}

export function toJson(reports, about) {
  const failures = reports.filter(({ isGood }) => !isGood)
  return {
    ...about,
    isGood: failures.length === 0,
    totals: totalsOf(reports),
    groups: groupsOf(reports),
    rounds: reports,
  }
}

export function listText() {
  return Object.values(scenarios)
    .map(({ name, title, stores, why = {} }) => {
      const others = STORES.filter((store) => !stores.includes(store)).map(
        (store) => `not ${store}: ${why[store]}`,
      )
      return [
        `${name.padEnd(22)} ${stores.join(', ')}`,
        `    ${title}`,
        ...others.map((line) => `    ${line}`),
      ].join('\n')
    })
    .join('\n')
}
