// A row: bar, what, ours, peer (texts), ratio, must (text), holds (true, false; undefined: information only), `measured`
// (the spread of both sides and of the ratio), `share` (how much of the requirement: 1 is just enough), and in `details`
// whatever is worth keeping in the JSON.
import { perSecond, spreadOf, times } from './numbers.js'

const COLUMNS = ['bar', 'what', 'ours', 'peer', 'ratio', 'must be', 'holds', 'spread: ours, peer, ratio']
const WIDEST = 160

/**
 * Compares one part of `alternate` with another by a field of their runs. `less` means that smaller is better. The bar holds if
 * the ratio of the medians is at least `atLeast`. Without `atLeast`, the row is information only. With `paired`, the median of
 * the ratios of all rounds is compared instead.
 */
export function compare(results, { what, ours = 'ours', peer, atLeast, details, ...how }) {
  const { field = 'rate', format = perSecond, less = false, paired = false } = how
  const [own, others] = [ours, peer].map((name) => results[name].map((run) => run[field]))
  const ratioOf = (mine, its) => (less ? its / mine : mine / its)
  const sides = { ours: sideOf(ours, own, format), peer: sideOf(peer, others, format) }
  const rounds = spreadOf(own.slice(0, others.length).map((value, round) => ratioOf(value, others[round])))
  const ratio = paired ? rounds.median : ratioOf(sides.ours.median, sides.peer.median)
  const isBar = atLeast !== undefined
  return {
    what,
    ours: format(sides.ours.median),
    peer: format(sides.peer.median),
    ratio,
    ...(isBar ? { must: `≥ ${atLeast} ×`, holds: ratio >= atLeast } : {}),
    measured: { field, ...sides, ratio: { ...rounds, range: range(rounds, ratioText) } },
    ...(isBar
      ? { share: { value: ratio / atLeast, low: rounds.lowest / atLeast, high: rounds.highest / atLeast } }
      : {}),
    details: { ...details, runs: { [ours]: results[ours], [peer]: results[peer] } },
  }
}

/** A figure that has a limit and no peer: its median must be at most `atMost`, or less than `below`. */
export function limit(runs, { what, field, format, atMost, below, details }) {
  const side = sideOf(
    'ours',
    runs.map((run) => run[field]),
    format,
  )
  const most = atMost ?? below
  return {
    what,
    ours: format(side.median),
    must: `${atMost === undefined ? '<' : '≤'} ${format(most).replace(/\.0+(?!\d)/, '')}`,
    holds: atMost === undefined ? side.median < below : side.median <= atMost,
    measured: { field, ours: side },
    share: { value: most / side.median, low: most / side.highest, high: most / side.lowest },
    details: { ...details, runs: { ours: runs } },
  }
}

function sideOf(name, values, format) {
  const spread = spreadOf(values)
  return { name, ...spread, range: range(spread, format) }
}

function range({ lowest, highest }, format) {
  const [low, high] = [format(lowest), format(highest)]
  const unit = / ?[^\d.,]*$/.exec(high)[0]
  return low.endsWith(unit) ? `${low.slice(0, low.length - unit.length)}–${high}` : `${low}–${high}`
}

const ratioText = (value) => times(value).replace(' ×', '')
const withinText = (percent) => `±${percent.toFixed(percent < 9.95 ? 1 : 0)} %`

/** Describes the spread of each side in per cent of its median, and the spread of the ratios per round. A single run has none. */
export function spreadTexts({ measured }) {
  if (!measured || measured.ours.runs < 2) return []
  const { ours, peer, ratio } = measured
  return [withinText(ours.percent), ...(peer ? [withinText(peer.percent), ratio.range] : [])]
}

export function verdictOf({ error, holds }) {
  if (error) return 'ERROR'
  return holds === undefined ? '' : holds ? 'yes' : 'NO'
}

export function tableOf(rows) {
  const lines = [COLUMNS, ...rows.map(cells)]
  const widths = COLUMNS.map((_, at) => Math.max(...lines.map((line) => line[at].length)))
  const others = widths.reduce((sum, width, at) => sum + (at === 1 ? 0 : width + 2), 0)
  widths[1] = Math.min(widths[1], WIDEST - others)
  const draw = (line) =>
    line
      .map((cell, at) => (isText(at) ? cut(cell, widths[at]).padEnd(widths[at]) : cell.padStart(widths[at])))
      .join('  ')
      .trimEnd()
  return [draw(COLUMNS), widths.map((width) => '─'.repeat(width)).join('  '), ...lines.slice(1).map(draw)]
}

const isText = (column) => column < 2 || column === COLUMNS.length - 1
const cut = (text, width) => (text.length > width ? `${text.slice(0, width - 1)}…` : text)

function cells(row) {
  return [
    row.bar,
    row.what,
    row.ours ?? '',
    row.peer ?? '',
    row.ratio === undefined ? '' : times(row.ratio),
    row.must ?? '',
    verdictOf(row),
    spreadTexts(row).join('  '),
  ]
}

export function printReport({ bars, node, postgres, options, seconds }) {
  for (const line of tableOf(bars)) console.log(line)
  for (const row of bars.filter(({ error }) => error)) console.log(`\n${row.bar} failed: ${row.error}`)
  const runs = options.repeat === 1 ? 'one run each' : `median of ${options.repeat} runs in turns`
  console.log(
    `\nNode ${node}, PostgreSQL ${postgres.version}, fsync on; ${runs}; ${Math.round(seconds)} s. Ratios count, not figures.`,
  )
}

/** Returns everything about a run as a JSON value. */
export function reportOf(rows, context) {
  return { ...context, holds: !rows.some((row) => row.holds === false), bars: rows }
}
