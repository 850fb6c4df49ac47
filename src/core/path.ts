import { quoteText } from './text.js'

/** A step into a value, as Standard Schema writes it. */
export type PathSegment = PropertyKey | { readonly key: PropertyKey }

const PLAIN_KEY = /^[A-Za-z_$][\w$]*$/
const MAX_KEY = 40
const MAX_PATH = 400

/** `$.items[3].price`. Keys only, never values: odd keys are quoted and escaped, long keys and paths are cut. */
export function formatPath(segments: readonly PathSegment[]): string {
  let path = '$'
  for (const segment of segments) path += formatSegment(typeof segment === 'object' ? segment.key : segment)
  return path.length <= MAX_PATH ? path : `${path.slice(0, MAX_PATH / 2)}…${path.slice(-MAX_PATH / 2)}`
}

function formatSegment(key: PropertyKey): string {
  if (typeof key === 'number') return `[${key}]`
  if (typeof key === 'symbol') return '[symbol]'
  return key.length <= MAX_KEY && PLAIN_KEY.test(key) ? `.${key}` : `[${quoteText(key, MAX_KEY)}]`
}
