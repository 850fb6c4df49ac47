type Line = readonly string[]

export function textTable(head: Line, rows: readonly Line[], left?: number): string
export function markdownTable(head: Line, rows: readonly Line[], left?: number): string
