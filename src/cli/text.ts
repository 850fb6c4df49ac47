import { escapeUnprintable as safe } from '../core/text.js'

export { duration } from '../core/duration.js'
/** Escapes control characters in text from a database or a user, so that it cannot control the terminal. */
export { safe }

const NARROW = /^[ -~\u00a0-\u02ff]*$/
const NO_CELL = /[\p{Mn}\p{Me}\p{Cf}]/u
const TWO_CELLS =
  /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]|\p{Emoji_Presentation}|[\u{20000}-\u{3fffd}]/u

/** Estimates the width of text in terminal cells. Wide characters take two cells, and combining characters take none. */
export function widthOf(text: string): number {
  if (NARROW.test(text)) return text.length
  let width = 0
  for (const char of text) width += NO_CELL.test(char) ? 0 : TWO_CELLS.test(char) ? 2 : 1
  return width
}

/** Cuts text to `width` cells. Text that was cut ends with an ellipsis. */
export function cut(text: string, width: number): string {
  // Texts may be megabytes long, and no cell is worth that many characters.
  const start = text.length > 10 * width + 100 ? text.slice(0, 10 * width + 100) : text
  if (start === text && widthOf(text) <= width) return text
  let taken = ''
  let cells = 0
  for (const char of start) {
    cells += widthOf(char)
    if (cells > width - 1) break
    taken += char
  }
  return width > 0 ? `${taken}…` : ''
}

function pad(text: string, width: number, right: boolean): string {
  const space = ' '.repeat(Math.max(0, width - widthOf(text)))
  return right ? space + text : text + space
}

export interface Column<Row> {
  readonly title: string
  readonly right?: boolean
  /** Whether the column is cut if the terminal is too narrow. The widest column is cut first. */
  readonly flexible?: boolean
  cell(row: Row): string
}

/** Least width of a flexible column. */
const LEAST = 8

/** Returns the lines of a table, titles first. Cells must not contain styles, because styles apply to whole lines. */
export function table<Row>(
  columns: readonly Column<Row>[],
  rows: readonly Row[],
  width = Number.POSITIVE_INFINITY,
): string[] {
  const cells = rows.map((row) => columns.map((column) => safe(column.cell(row))))
  const widths = columns.map(({ title }, at) =>
    cells.reduce((most, line) => Math.max(most, widthOf(line[at] as string)), title.length),
  )
  const isFlexible = columns.map((column) => column.flexible === true)
  squeeze(widths, isFlexible, width - 2 * (columns.length - 1))
  const lineOf = (line: readonly string[]) => {
    const fitting = line.map((text, at) => {
      const room = widths[at] as number
      return pad(cut(text, room), room, columns[at]?.right === true)
    })
    return cut(fitting.join('  ').trimEnd(), width)
  }
  return [lineOf(columns.map(({ title }) => title)), ...cells.map(lineOf)]
}

/** Narrows the widest flexible column, step by step, until the table fits. */
function squeeze(widths: number[], isFlexible: readonly boolean[], room: number): void {
  let surplus = widths.reduce((sum, width) => sum + width, 0) - room
  while (surplus > 0) {
    const order = widths.map((_, at) => at).filter((at) => isFlexible[at] && (widths[at] as number) > LEAST)
    order.sort((a, b) => (widths[b] as number) - (widths[a] as number))
    const [widest, next] = order
    if (widest === undefined) return
    const floor = next === undefined ? LEAST : Math.max(LEAST, (widths[next] as number) - 1)
    const taken = Math.min(surplus, (widths[widest] as number) - floor)
    widths[widest] = (widths[widest] as number) - taken
    surplus -= taken
  }
}
