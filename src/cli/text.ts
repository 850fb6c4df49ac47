export { duration } from '../core/duration.js'

/** Text from a database or a user, with what could move a terminal's cursor made visible. */
export function safe(text: string): string {
  return text.replace(/[\p{Cc}\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu, escapeUnit)
}

function escapeUnit(char: string): string {
  return `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`
}

/** At most `width` characters; an ellipsis tells that there were more. */
export function cut(text: string, width: number): string {
  return text.length <= width ? text : `${text.slice(0, Math.max(0, width - 1))}…`
}

export interface Column<Row> {
  readonly title: string
  readonly right?: boolean
  /** Cut when the terminal is too narrow; one column of a table may be so. */
  readonly flexible?: boolean
  cell(row: Row): string
}

/** Lines of equal columns, the titles first. Cells may not hold styles: they are given by the line. */
export function table<Row>(
  columns: readonly Column<Row>[],
  rows: readonly Row[],
  width = Number.POSITIVE_INFINITY,
): string[] {
  const cells = rows.map((row) => columns.map((column) => safe(column.cell(row))))
  const widths = columns.map(({ title }, at) =>
    Math.max(title.length, ...cells.map((line) => (line[at] as string).length)),
  )
  const flexible = columns.findIndex((column) => column.flexible)
  const total = widths.reduce((sum, one) => sum + one, 0) + 2 * (columns.length - 1)
  if (flexible >= 0 && total > width) {
    widths[flexible] = Math.max(8, (widths[flexible] as number) - (total - width))
  }
  const lineOf = (line: readonly string[]) =>
    line
      .map((text, at) => {
        const room = widths[at] as number
        const fitting = cut(text, room)
        return columns[at]?.right ? fitting.padStart(room) : fitting.padEnd(room)
      })
      .join('  ')
      .trimEnd()
  return [lineOf(columns.map(({ title }) => title)), ...cells.map(lineOf)]
}
