import { StoreNotMigratedError } from '../../core/errors.js'
import { isA } from '../../core/unknown.js'
import { isServerError, type Query } from './driver.js'
import { serverErrorIn } from './hosted.js'
import type { Names } from './names.js'

/** A table of the store, and the privileges on it that the application needs. */
export interface Right {
  /** Quoted, and qualified if the store is. */
  readonly name: string
  /** Without quotes and database. */
  readonly bare: string
  readonly privileges: readonly Privilege[]
  /** The privileges without which no worker can start. Publishing, pausing and pruning need the others. */
  readonly essential: readonly Privilege[]
  /** A text column, for statements that try a privilege. */
  readonly column: string
}

export type Privilege = 'SELECT' | 'INSERT' | 'UPDATE' | 'DELETE'

const ALL: readonly Privilege[] = ['SELECT', 'INSERT', 'UPDATE', 'DELETE']

export function rightsOf(names: Names): readonly Right[] {
  const { index } = names
  return [
    {
      name: names.events,
      bare: index,
      privileges: ALL,
      essential: ['SELECT', 'UPDATE'],
      column: 'event_type',
    },
    {
      name: names.instances,
      bare: `${index}_instance`,
      privileges: ALL,
      essential: ['SELECT', 'INSERT', 'UPDATE'],
      column: 'id',
    },
    // A pause that exists is written once more, which needs UPDATE.
    {
      name: names.pauses,
      bare: `${index}_pause`,
      privileges: ALL,
      essential: ['SELECT'],
      column: 'event_type',
    },
    { name: names.inbox, bare: `${index}_inbox`, privileges: ALL, essential: [], column: 'handler' },
    {
      name: names.migrations,
      bare: `${index}_migration`,
      privileges: ['SELECT'],
      essential: ['SELECT'],
      column: 'name',
    },
  ]
}

/** The rights of a worker that only handles events, or all rights that an application needs. */
export type Purpose = 'handling' | 'everything'

/** The tables that exist and on which the user lacks privileges, with those privileges only. */
export async function missingRights(query: Query, names: Names, purpose: Purpose): Promise<readonly Right[]> {
  const missing: Right[] = []
  for (const right of rightsOf(names)) {
    const lacking: Privilege[] = []
    for (const privilege of purpose === 'handling' ? right.essential : right.privileges) {
      if (await isDenied(query, right, privilege)) lacking.push(privilege)
    }
    if (lacking.length > 0) missing.push({ ...right, privileges: lacking })
  }
  return missing
}

/** Lets the server explain a statement, which needs the same privileges as the statement, and changes nothing. */
async function isDenied(query: Query, { name, column }: Right, privilege: Privilege): Promise<boolean> {
  const statements: Readonly<Record<Privilege, string>> = {
    SELECT: `select 1 from ${name} where 1 = 0`,
    INSERT: `insert into ${name} (${column}) values ('')`,
    UPDATE: `update ${name} set ${column} = '' where 1 = 0`,
    DELETE: `delete from ${name} where 1 = 0`,
  }
  try {
    await query(`explain ${statements[privilege]}`)
    return false
  } catch (error) {
    const reported = serverErrorIn(error)
    if (isAccessDenied(reported)) return true
    // The table does not exist.
    if (isServerError(reported) || isA(error, StoreNotMigratedError)) return false
    throw error
  }
}

const TABLE_DENIED = 1142
const COLUMN_DENIED = 1143

export function isAccessDenied(error: unknown): boolean {
  return isServerError(error) && (error.errno === TABLE_DENIED || error.errno === COLUMN_DENIED)
}
