/** Which handlers each event type has, and which of them are exactly-once. */
export const HANDLERS = {
  'thing.noted': ['note'],
  'thing.counted': ['note', 'count'],
  'thing.tried': ['note', 'try', 'count'],
  'poison.kills': ['poison'],
  'poison.fails': ['poison'],
}
/** How often a poison event is tried. */
export const POISON_ATTEMPTS = 4
export const COMMON_TYPES = ['thing.noted', 'thing.counted', 'thing.tried']
export const EXACTLY_ONCE = ['count']
export const KEYS = Array.from({ length: 8 }, (_, n) => `key-${n}`)
