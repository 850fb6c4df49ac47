import { widthOf } from './text.js'

/** Breaks text between words into lines of at most `width` terminal cells. A longer word gets a line of its own. */
export function wrap(text: string, width: number): string[] {
  const lines: string[] = []
  let line = ''
  for (const word of text.split(/\s+/)) {
    if (line !== '' && widthOf(line) + 1 + widthOf(word) > width) {
      lines.push(line)
      line = word
    } else line = line === '' ? word : `${line} ${word}`
  }
  return [...lines, line]
}

/** Wraps text behind `head`. The lines after the first are indented by the width of the head. */
export function wrapBehind(head: string, text: string, width: number): string[] {
  const indent = ' '.repeat(widthOf(head))
  return wrap(text, width - indent.length).map((line, at) => (at === 0 ? head : indent) + line)
}
