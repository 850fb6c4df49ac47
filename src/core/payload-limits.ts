/** The largest payload, in bytes of UTF-8 once serialised. */
export const MAX_PAYLOAD_BYTES = 1_048_576

/** The deepest nesting of arrays and objects. */
export const MAX_PAYLOAD_DEPTH = 100

const NON_ASCII = /[\u0080-\uffff]/

/** Bytes of the text in UTF-8, without encoding it. A lone surrogate counts as the three bytes of U+FFFD. */
export function utf8Length(text: string): number {
  const first = text.search(NON_ASCII)
  if (first === -1) return text.length
  let bytes = text.length
  for (let i = first; i < text.length; i++) {
    const unit = text.charCodeAt(i)
    if (unit < 0x80) continue
    if (unit < 0x800) bytes += 1
    else if (unit >= 0xd800 && unit <= 0xdbff && isLow(text.charCodeAt(i + 1))) {
      bytes += 2
      i++
    } else bytes += 2
  }
  return bytes
}

function isLow(unit: number): boolean {
  return unit >= 0xdc00 && unit <= 0xdfff
}
