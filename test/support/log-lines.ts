import fs from 'node:fs'
import path from 'node:path'

export interface DocumentedLine {
  readonly level: string
  readonly message: string
  readonly fields: ReadonlySet<string>
  readonly advice: string
}

const PAGE = path.resolve(import.meta.dirname, '../../docs/logging.md')
const WORDS: Readonly<Record<string, readonly string[]>> = {
  event: ['event_id', 'event_type', 'correlation_id'],
  error: ['error', 'error_message'],
}

/** The tables of docs/logging.md. */
export function documentedLines(): readonly DocumentedLine[] {
  const rows = [
    ...fs
      .readFileSync(PAGE, 'utf8')
      .matchAll(/^\| (debug|info|warn|error) \| (.*?) \| (.*?) ?\| (.*?) ?\|$/gm),
  ]
  return rows.map(([, level = '', message = '', fields = '', advice = '']) => ({
    level,
    message,
    fields: new Set(fieldsIn(fields.replaceAll(/\([^)]*\)/g, ''))),
    advice,
  }))
}

function fieldsIn(cell: string): readonly string[] {
  const own = [...cell.matchAll(/`(\w+)`/g)].map((match) => match[1] as string)
  const words = [...cell.replaceAll(/`\w+`/g, '').matchAll(/\w+/g)].flatMap(([word]) => WORDS[word] ?? [])
  return [...own, ...words]
}

/** What is wrong with lines of the default logger: unknown ones, and fields that the page does not name. */
export function undocumentedIn(lines: readonly string[]): string[] {
  const known = documentedLines().map((line) => ({ ...line, pattern: patternOf(line.message) }))
  return lines.flatMap((text) => {
    const { time: _, level, msg, ...fields } = JSON.parse(text) as Record<string, string>
    const line = known.find((one) => one.level === level && one.pattern.test(String(msg)))
    if (!line) return [`unknown: ${level} ${msg}`]
    return Object.keys(fields)
      .filter((field) => !line.fields.has(field))
      .map((field) => `${level} ${msg}: ${field}`)
  })
}

function patternOf(message: string): RegExp {
  return new RegExp(`^${message.split('…').map(escaped).join('.+')}$`)
}

function escaped(text: string): string {
  return text.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&')
}
