const REPLACEMENT = '\ufffd'

/** Matches every character that may need care: controls (C0, DEL, C1) and any surrogate. Cheap first look. */
const SUSPECT = /[^ -~\u00a0-\ud7ff\ue000-\uffff]/
const CONTROL = /\p{Cc}/u
/** With the `u` flag a surrogate that has its partner is one character, so this finds lone ones only. */
const LONE_SURROGATE = /\p{Cs}/u
const LONE_SURROGATES = /\p{Cs}/gu
const PRINTABLE_ASCII = /^[ -~]*$/
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu

/** True when the text holds no half of a surrogate pair, which databases reject or mangle. */
export function isWellFormed(text: string): boolean {
  return !LONE_SURROGATE.test(text)
}

/** True when the text is well-formed and holds no control character. */
export function isClean(text: string): boolean {
  return !SUSPECT.test(text) || (!CONTROL.test(text) && !LONE_SURROGATE.test(text))
}

/** Well-formed text of at most `max` UTF-16 units that any database takes: NUL and lone surrogates become U+FFFD. */
export function sanitizeText(text: string, max: number): string {
  let cut = text
  if (text.length > max) {
    const end =
      isHighSurrogate(text.charCodeAt(max - 1)) && isLowSurrogate(text.charCodeAt(max)) ? max - 1 : max
    cut = text.slice(0, Math.max(0, end))
  }
  return SUSPECT.test(cut) ? cut.replaceAll('\0', REPLACEMENT).replace(LONE_SURROGATES, REPLACEMENT) : cut
}

/** The text in double quotes, cut at `max`, with everything a terminal or a log line could trip over escaped. */
export function quoteText(text: string, max = 80): string {
  const shown = text.length > max ? `${sanitizeText(text, max)}…` : text
  return escapeUnprintable(JSON.stringify(shown))
}

/**
 * Escapes as `\uXXXX` what a terminal obeys and what a reader cannot see: control characters, line separators, bidirectional
 * and other format characters, and lone surrogates. Escaped JSON text keeps its meaning.
 */
export function escapeUnprintable(text: string): string {
  return PRINTABLE_ASCII.test(text) ? text : text.replace(UNPRINTABLE, escapeUnits)
}

function isHighSurrogate(unit: number): boolean {
  return unit >= 0xd800 && unit <= 0xdbff
}

function isLowSurrogate(unit: number): boolean {
  return unit >= 0xdc00 && unit <= 0xdfff
}

/** Characters outside the basic plane become two escapes, as JSON wants it. */
function escapeUnits(char: string): string {
  let escaped = ''
  for (let at = 0; at < char.length; at++)
    escaped += `\\u${char.charCodeAt(at).toString(16).padStart(4, '0')}`
  return escaped
}
