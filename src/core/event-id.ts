import { InvalidEventIdError } from './errors.js'
import { isClean } from './text.js'

declare const brand: unique symbol

/** Names one event, everywhere. A plain string at run time and in JSON. */
export type EventId = string & { readonly [brand]: 'EventId' }

/** Longest event id, in UTF-16 units. */
export const MAX_EVENT_ID = 64
const POOL_BYTES = 8_192
const BYTES_PER_ID = 6
const COUNTER_LIMIT = 2 ** 26
const SEED_MASK = 2 ** 25 - 1
const MAX_MS = 2 ** 48 - 1

const HEX = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, '0'))

/**
 * Makes UUIDv7 text that is strictly increasing, also when `now` stands still, steps back or is not a number:
 * 48 bits of milliseconds, a counter of 26 bits that starts at random in each millisecond, 48 random bits.
 * When the counter overflows, the millisecond moves on.
 */
export function createEventIdGenerator(
  now: () => number,
  random: (bytes: Uint8Array) => void = (bytes) => globalThis.crypto.getRandomValues(bytes),
  counterLimit = COUNTER_LIMIT,
): () => EventId {
  const pool = new Uint8Array(POOL_BYTES)
  let used = POOL_BYTES
  let lastMs = -1
  let counter = 0
  let prefix = ''

  function byte(): string {
    return HEX[pool[used++] as number] as string
  }

  function seed(): number {
    const bits =
      ((pool[used] as number) << 24) |
      ((pool[used + 1] as number) << 16) |
      ((pool[used + 2] as number) << 8) |
      (pool[used + 3] as number)
    used += 4
    return bits & SEED_MASK
  }

  function moveTo(ms: number): void {
    lastMs = ms
    counter = seed()
    const hex = ms.toString(16).padStart(12, '0')
    prefix = `${hex.slice(0, 8)}-${hex.slice(8)}-7`
  }

  return () => {
    if (used + 4 + BYTES_PER_ID > POOL_BYTES) {
      random(pool)
      used = 0
    }
    const ms = Math.trunc(now())
    if (ms > lastMs && ms <= MAX_MS) moveTo(ms)
    else if (lastMs < 0) moveTo(0)
    else if (++counter >= counterLimit) moveTo(lastMs + 1)

    // 12 bits of the counter after the version digit, 14 after the variant bits.
    const high = counter >>> 14
    const low = counter & 0x3fff
    return (prefix +
      (HEX[high >>> 4] as string) +
      (HEX_DIGITS[high & 15] as string) +
      '-' +
      (HEX[0x80 | (low >>> 8)] as string) +
      (HEX[low & 255] as string) +
      '-' +
      byte() +
      byte() +
      byte() +
      byte() +
      byte() +
      byte()) as EventId
  }
}

const HEX_DIGITS = '0123456789abcdef'

/** Keeps any string of 1 to 64 characters without control characters; otherwise throws InvalidEventIdError. */
function fromText(value: string): EventId {
  if (typeof value !== 'string') throw new InvalidEventIdError('is not a string')
  if (value === '') throw new InvalidEventIdError('is empty')
  if (value.length > MAX_EVENT_ID) throw new InvalidEventIdError(`is longer than ${MAX_EVENT_ID} characters`)
  if (!isClean(value)) throw new InvalidEventIdError('holds control characters or half a surrogate pair')
  return value as EventId
}

/** `EventId.new()` makes a UUIDv7, strictly increasing within the process; `EventId.from(text)` keeps the text. */
export const EventId: { readonly new: () => EventId; readonly from: (value: string) => EventId } =
  Object.freeze({
    new: createEventIdGenerator(Date.now),
    from: fromText,
  })
