import fs from 'node:fs'
import path from 'node:path'
import { ROOT } from './snippets.js'

/** A match in a page, with `docs/relay.md:37` as its place. */
export interface Found {
  readonly place: string
  readonly groups: readonly string[]
}

/** A row of a table: cells in order, and cells by the title of their column. */
export interface Row {
  readonly place: string
  readonly values: readonly string[]
  readonly cells: Readonly<Record<string, string>>
}

const FOLDERS = ['.', 'docs', 'bench', 'faults', 'examples', 'demo']

/** Every Markdown page of the repository, with its path from the root. */
export const PAGES: readonly string[] = FOLDERS.flatMap((folder) =>
  fs
    .readdirSync(path.join(ROOT, folder), { recursive: folder !== '.', encoding: 'utf8' })
    .filter((name) => name.endsWith('.md') && !name.includes('node_modules'))
    .map((name) => path.posix.join(folder, name)),
).sort()

/** Pages that describe the present state. The changelog also describes former states. */
export const CURRENT_PAGES: readonly string[] = PAGES.filter((page) => page !== 'CHANGELOG.md')

export function read(file: string): string {
  return fs.readFileSync(path.join(ROOT, file), 'utf8')
}

/** Returns every match of the pattern, which needs the flag `g`, in a file. */
export function findIn(file: string, pattern: RegExp, text = read(file)): Found[] {
  return [...text.matchAll(pattern)].map((match) => ({
    place: `${file}:${text.slice(0, match.index).split('\n').length}`,
    groups: [...match].map((group) => group ?? ''),
  }))
}

export function findInPages(pattern: RegExp): Found[] {
  return CURRENT_PAGES.flatMap((page) => findIn(page, pattern))
}

/** Returns the rows of the table whose header line starts with `header`. */
export function tableOf(page: string, header: string): Row[] {
  const lines = read(page).split('\n')
  const start = lines.findIndex((line) => line.startsWith(header))
  if (start < 0) throw new Error(`${page} has no table ${header}`)
  const titles = cellsOf(lines[start] as string)
  const end = lines.findIndex((line, at) => at > start && !line.startsWith('|'))
  return lines.slice(start + 2, end < 0 ? undefined : end).map((line, at) => ({
    place: `${page}:${start + at + 3}`,
    values: cellsOf(line),
    cells: Object.fromEntries(cellsOf(line).map((cell, column) => [titles[column] ?? '', cell])),
  }))
}

function cellsOf(line: string): string[] {
  return line
    .split('|')
    .slice(1, -1)
    .map((cell) => cell.trim().replaceAll('`', ''))
}

/** `1,048,576`, `60_000` and `0.70` as numbers. */
export function numberOf(text: string): number {
  return Number(text.replaceAll(/[,_](?=\d{3})|,$/g, ''))
}

/** Reads a numeric constant from a source file, also if the file does not export it. */
export function constantIn(file: string, name: string): number {
  const factors = new RegExp(`\\bconst ${name} = (\\w+(?: \\* \\w+)*)$`, 'm').exec(read(file))?.[1]
  if (factors === undefined) throw new Error(`${file} has no numeric constant ${name}`)
  return factors
    .split(' * ')
    .map((factor) => (/^\d/.test(factor) ? numberOf(factor) : constantIn(file, factor)))
    .reduce((product, factor) => product * factor, 1)
}

/** Returns one line per page, line and pair of values that differ. */
export function differing(
  pairs: readonly {
    readonly place: string
    readonly says: unknown
    readonly code: unknown
    readonly what: string
  }[],
): string[] {
  return pairs
    .filter(({ says, code }) => says !== code)
    .map(({ place, says, code, what }) => `${place} says ${says}, but ${what} is ${code}`)
}
