// A row: bar, what, ours, peer (texts), ratio, must (text), holds (true, false; undefined: information only),
// and in `details` whatever is worth keeping in the JSON.
import { times } from './numbers.js'

const COLUMNS = ['bar', 'what', 'ours', 'peer', 'ratio', 'must be', 'holds']

export function printTable(rows, { node, postgres, seconds }) {
  const lines = [COLUMNS, ...rows.map(cells)]
  const widths = COLUMNS.map((_, at) => Math.max(...lines.map((line) => line[at].length)))
  const draw = (line) =>
    line.map((cell, at) => (at < 2 ? cell.padEnd(widths[at]) : cell.padStart(widths[at]))).join('  ')
  console.log(draw(COLUMNS))
  console.log(widths.map((width) => '─'.repeat(width)).join('  '))
  for (const line of lines.slice(1)) console.log(draw(line))
  for (const row of rows.filter(({ error }) => error)) console.log(`\n${row.bar} failed: ${row.error}`)
  console.log(
    `\nNode ${node}, PostgreSQL ${postgres}, fsync on; ${Math.round(seconds)} s. Ratios count, not figures.`,
  )
}

function cells(row) {
  return [
    row.bar,
    row.what,
    row.ours ?? '',
    row.peer ?? '',
    row.ratio === undefined ? '' : times(row.ratio),
    row.must ?? '',
    row.error ? 'ERROR' : row.holds === undefined ? '' : row.holds ? 'yes' : 'NO',
  ]
}

export function toJson(rows, context) {
  return { ...context, holds: !rows.some((row) => row.holds === false), bars: rows }
}

/** A row for a bar on a ratio: holds when the ratio is at least `atLeast`; without it, information. */
export function ratioRow({ what, ours, peer, format, ratio, atLeast, details }) {
  return {
    what,
    ours: format(ours),
    peer: format(peer),
    ratio,
    ...(atLeast === undefined ? {} : { must: `≥ ${atLeast} ×`, holds: ratio >= atLeast }),
    details: { ours, peer, ...details },
  }
}
