import { AftercommitError } from '../core/errors.js'
import { describeDriverError } from '../core/redact.js'
import { describeError } from '../core/unknown.js'

/** `1 event`, `1,204 events`. */
export function counted(count: number, what: string): string {
  return `${count.toLocaleString('en-US')} ${what}${count === 1 ? '' : 's'}`
}

/** Lines of at most that width, broken between words; a longer word has a line of its own. */
export function wrap(text: string, width: number): string[] {
  const lines: string[] = []
  let line = ''
  for (const word of text.split(/\s+/)) {
    if (line !== '' && line.length + 1 + word.length > width) {
      lines.push(line)
      line = word
    } else line = line === '' ? word : `${line} ${word}`
  }
  return [...lines, line]
}

/** An error as a person reads it. Errors of ours speak for themselves, and those of a driver need their name. */
export function reasonOf(error: unknown): string {
  if (error instanceof AftercommitError) return describeError(error).message
  const { name, message } = describeDriverError(error)
  return `${name}: ${message}`
}
