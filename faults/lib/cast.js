/** Which handlers each event type has, and which of them are exactly-once. */
export const HANDLERS = {
  'thing.noted': ['note'],
  'thing.counted': ['note', 'count'],
  'thing.tried': ['note', 'try', 'count'],
  'script.due': ['note'],
  'poison.kills': ['poison'],
  'poison.fails': ['poison'],
}
/** Only scripts handle it, which run from time to time. */
export const SCRIPT_TYPE = 'script.due'
/** How often a poison event is tried. */
export const POISON_ATTEMPTS = 4
export const COMMON_TYPES = ['thing.noted', 'thing.counted', 'thing.tried']
export const EXACTLY_ONCE = ['count']
export const KEYS = Array.from({ length: 8 }, (_, n) => `key-${n}`)
