import { nearest } from './nearest.js'
import { quoteText } from './text.js'

const PLAIN_NAME = /^[A-Za-z_$][\w$]{0,39}$/

/** Names that an object may have, and the words for error messages. */
export interface KnownKeys {
  /** 'createOutbox()', 'an event' */
  readonly of: string
  readonly kind: 'setting' | 'field'
  readonly names: ReadonlySet<string>
  /** Names that users look for here although they belong elsewhere, with the right place. */
  readonly places?: ReadonlyMap<string, string>
}

/**
 * Throws for the first own name of the object that is not known, because a misspelled name would silently have no effect.
 * The error suggests the place where the name belongs, or the most similar name.
 */
export function rejectUnknownKeys(
  given: object,
  known: KnownKeys,
  refuse: (name: string, reason: string) => Error,
): void {
  for (const name in given) {
    // Inherited names are not the caller's: a library may have extended Object.prototype.
    if (known.names.has(name) || !Object.hasOwn(given, name)) continue
    throw refuse(PLAIN_NAME.test(name) ? name : quoteText(name, 40), reasonFor(name, known))
  }
}

function reasonFor(name: string, { of, kind, names, places }: KnownKeys): string {
  const all = [...names]
  const place = places?.get(name)
  const guess = nearest(name, all)
  const advice = place ? ` Use ${place}.` : guess ? ` Did you mean ${guess}?` : ''
  return `${of} has no such ${kind}.${advice} Known ${kind}s: ${all.join(', ')}`
}
