import type { Names } from './names.js'

/** An object of the store, and the privileges on it that the application needs. */
export interface Right {
  /** Quoted, and qualified if the store is. */
  readonly name: string
  /** As the server writes it into messages. */
  readonly bare: string
  readonly kind: 'TABLE' | 'SEQUENCE' | 'FUNCTION'
  readonly privileges: readonly string[]
  /** The privileges without which no worker can start. Publishing, pausing and pruning need the others. */
  readonly essential: readonly string[]
}

/** The rights that docs/security.md grants to a worker. */
export function rightsOf(names: Names): readonly Right[] {
  const all = 'SELECT INSERT UPDATE DELETE'
  return [
    right(names.events, 'TABLE', all, 'SELECT UPDATE'),
    right(names.instances, 'TABLE', all, 'SELECT INSERT UPDATE'),
    right(names.pauses, 'TABLE', 'SELECT INSERT DELETE', 'SELECT'),
    right(names.inbox, 'TABLE', 'SELECT INSERT DELETE', ''),
    right(names.ranges, 'TABLE', all, all),
    right(names.migrations, 'TABLE', 'SELECT', 'SELECT'),
    right(names.sequence, 'SEQUENCE', 'USAGE SELECT', 'SELECT'),
    right(names.rangeCount, 'SEQUENCE', 'USAGE SELECT', 'USAGE'),
    right(names.rangesTaken, 'FUNCTION', 'EXECUTE', 'EXECUTE'),
    right(names.takeRange, 'FUNCTION', 'EXECUTE', 'EXECUTE'),
  ]
}

function right(name: string, kind: Right['kind'], privileges: string, essential: string): Right {
  const split = (text: string) => text.split(' ').filter(Boolean)
  const bare = name.slice(name.lastIndexOf('."') + 1).replaceAll(/[."]/g, '')
  return { name, bare, kind, privileges: split(privileges), essential: split(essential) }
}
