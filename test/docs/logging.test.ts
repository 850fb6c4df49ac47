import fs from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { documentedLines } from '../support/log-lines.js'
import { ROOT } from './snippets.js'

/** `level message`, with `…` for what a line fills in. */
type Line = string

const SOURCES = fs
  .readdirSync(path.join(ROOT, 'src'), { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.ts') && !file.endsWith('.test.ts') && !file.startsWith('testing'))

/** The text of a call from its opening parenthesis to the closing one. */
function callAt(text: string, open: number): string {
  let depth = 0
  for (let at = open; at < text.length; at++) {
    if (text[at] === '(') depth++
    if (text[at] === ')' && --depth === 0) return text.slice(open + 1, at)
  }
  throw new Error(`a call without an end: ${text.slice(open, open + 80)}`)
}

/** The last text among the arguments: that is the message. */
function messageIn(call: string): string | undefined {
  const texts = [...call.matchAll(/'((?:[^'\\]|\\.)*)'|`((?:[^`\\]|\\.)*)`/g)].map(
    (match) => match[1] ?? match[2],
  )
  return texts.at(-1)?.replaceAll(/\$\{[^}]*\}/g, '…')
}

function written(): Map<Line, string> {
  const lines = new Map<Line, string>()
  for (const file of SOURCES) {
    const text = fs.readFileSync(path.join(ROOT, 'src', file), 'utf8')
    const calls = [
      ...text.matchAll(/\b(?:logger|log)\.(debug|info|warn|error)\(/gi),
      ...text.matchAll(/\bonWarning\(/g),
    ]
    for (const match of calls) {
      const call = callAt(text, match.index + match[0].length - 1)
      const message = messageIn(call)
      // The port itself, and what passes a line on.
      if (message === undefined || /^\s*\w+: |=>|\.\.\.more/.test(call)) continue
      lines.set(`${match[1] ?? 'warn'} ${message}`, file)
    }
  }
  return lines
}

describe('docs/logging.md', () => {
  it('lists every line that the library writes, and no other', () => {
    const lines = [...written().keys()].sort()
    expect(lines.length).toBeGreaterThan(30)
    expect(
      documentedLines()
        .map(({ level, message }) => `${level} ${message}`)
        .sort(),
    ).toEqual(lines)
  })

  it('says what to do about every warning and error', () => {
    const mute = documentedLines().filter(
      ({ level, advice }) => /^(warn|error)$/.test(level) && advice.length < 10,
    )
    expect(mute.map(({ message }) => message)).toEqual([])
  })
})
