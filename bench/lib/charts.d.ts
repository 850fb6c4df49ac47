import type { Row } from './report.js'

/** SVG by file name. */
export function chartsOf(rows: readonly Row[]): Record<string, string>
