/** Columns on a terminal: the first `left` ones begin at the left, the others end at the right. */
export function textTable(head, rows, left = 1) {
  const lines = [head, ...rows]
  const widths = head.map((_, at) => Math.max(...lines.map((line) => line[at].length)))
  const draw = (line) =>
    line
      .map((cell, at) => (at < left ? cell.padEnd(widths[at]) : cell.padStart(widths[at])))
      .join('  ')
      .trimEnd()
  return [draw(head), widths.map((width) => '─'.repeat(width)).join('  '), ...rows.map(draw)].join('\n')
}

export function markdownTable(head, rows, left = 1) {
  const rule = head.map((_, at) => (at < left ? '---' : '---:'))
  const safe = (cell) => cell.replaceAll('|', '\\|')
  return [head, rule, ...rows].map((line) => `| ${line.map(safe).join(' | ')} |`).join('\n')
}
