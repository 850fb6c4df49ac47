// Payloads that a handler can verify: awkward content, and a digest of it.
import { createHash } from 'node:crypto'

const TEXTS = [
  '',
  ' ',
  'plain',
  "it's; drop table outbox_event; --",
  '\\u0000 \\ " \' ` %s $1 ? :name',
  'tab\tline\nreturn\rbell\u0007escape\u001b[31m',
  'äöüß ÅÄÖ ñ é e\u0301',
  '日本語 한국어 العربية עברית',
  '😀👩‍👩‍👧‍👦🏳️‍🌈',
  '\u2028\u2029\ufeff\u200b\u{10ffff}',
  'x'.repeat(3_000),
]
const NUMBERS = [0, 1, -1, 0.1, 1e21, 5e-324, 1.7976931348623157e308, 9_007_199_254_740_991]

export function payloadOf(random, more = {}) {
  const body = contentOf(random, 3)
  return { ...more, body, digest: digestOf(body) }
}

export function isIntact(payload) {
  return payload !== null && typeof payload === 'object' && digestOf(payload.body) === payload.digest
}

function contentOf(random, depth) {
  const kind = random.below(depth > 0 ? 6 : 4)
  if (kind === 0) return random.pick([null, true, false])
  if (kind === 1) return random.pick(NUMBERS)
  if (kind < 4) return random.pick(TEXTS)
  const parts = Array.from({ length: random.below(4) }, () => contentOf(random, depth - 1))
  if (kind === 4) return parts
  return Object.fromEntries(
    parts.map((part, at) => [`${random.pick(['a', 'é', '__proto', 'k v'])}${at}`, part]),
  )
}

/** Of the content and not of its text: a database may write keys in another order. */
function digestOf(value) {
  return createHash('sha1').update(canonical(value)).digest('hex')
}

function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`
  if (value === null || typeof value !== 'object') return JSON.stringify(value) ?? 'undefined'
  const keys = Object.keys(value).sort()
  return `{${keys.map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`).join()}}`
}
