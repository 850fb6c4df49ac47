import { findIn } from './pages.js'

interface Commented {
  readonly place: string
  readonly text: string
}

/** Returns the text behind `Default` in the doc comments of a file, by the name of the option. */
export function commentedDefaults(file: string): ReadonlyMap<string, Commented> {
  const pattern = /\/\*\*((?:(?!\*\/)[\s\S])*)\*\/\n\s+readonly (\w+)\?:/g
  const found = findIn(file, pattern).flatMap(({ place, groups: [, comment = '', name = ''] }) => {
    const text = /\bDefault:? (`[^`]*`|'[^']*'|[^.;]+)/.exec(comment.replaceAll(/\s*\n\s*\* ?/g, ' '))?.[1]
    return text === undefined ? [] : [[name, { place, text: text.replaceAll('`', '').trim() }] as const]
  })
  return new Map(found)
}
