import { type Query, statement } from './driver.js'
import {
  createsInSystemSchema,
  denied,
  noCreate,
  noSchema,
  notOwner,
  rowSecurity,
  wrongClientEncoding,
  wrongEncoding,
} from './errors.js'
import type { Names } from './names.js'
import { type Right, rightsOf } from './rights.js'

const encodings = statement(`select current_setting('server_encoding'), current_setting('client_encoding')`)

/** Without a conversion the bytes of the driver, which are UTF-8, arrive as they are. */
const CLIENT_ENCODINGS = ['UTF8', 'SQL_ASCII']

/** Throws in a database, or on connections, in which texts would change or be refused. */
export async function checkEncoding(query: Query): Promise<void> {
  const [[server, client] = []] = await query(encodings, [])
  if (server !== 'UTF8') throw wrongEncoding(String(server))
  if (!CLIENT_ENCODINGS.includes(String(client))) throw wrongClientEncoding(String(client))
}

/** Whether a user needs the rights of a worker that only handles events, or all rights of docs/security.md. */
export type Purpose = 'handling' | 'everything'

/** Throws when no worker could run, which it would otherwise learn from failing claims. */
export async function checkRights(query: Query, names: Names): Promise<void> {
  const missing = await missingRights(query, names, 'handling')
  if (missing.length > 0) throw denied(missing)
}

/** Throws when row level security hides every row. Claims would find no events, and report no error. */
export async function checkRowSecurity(query: Query, names: Names): Promise<void> {
  const hidden = (await rowSecurityOf(query, names, 'handling')).filter(({ isAllowed }) => !isAllowed)
  if (hidden.length > 0) throw rowSecurity(hidden.map(({ table }) => table))
}

/** Throws when row level security hides the list of applied migrations. All of them would seem to be missing. */
export async function checkSeesMigrations(query: Query, names: Names): Promise<void> {
  const active = await rowSecurityOf(query, names, 'handling')
  if (!active.some(({ table }) => table === names.migrations)) return
  const hidden = active.filter(({ table, isAllowed }) => !isAllowed || table === names.migrations)
  throw rowSecurity(hidden.map(({ table }) => table))
}

/** The objects that exist and on which the user lacks privileges, with those privileges only. */
export async function missingRights(query: Query, names: Names, purpose: Purpose): Promise<readonly Right[]> {
  const needed = neededRights(names, purpose)
  const checks = needed.flatMap(({ name, kind, privileges }, index) =>
    privileges.map((privilege) => `(${index}, '${privilege}', ${hasPrivilege(name, kind, privilege)})`),
  )
  const rows = await query(
    statement(
      `select n, privilege from (values ${checks.join(', ')}) v (n, privilege, is_there) where not is_there`,
    ),
    [],
  )
  return needed
    .map((right, index) => {
      const privileges = rows.filter(([n]) => Number(n) === index).map((row) => String(row[1]))
      return { ...right, privileges: right.privileges.filter((one) => privileges.includes(one)) }
    })
    .filter(({ privileges }) => privileges.length > 0)
}

function neededRights(names: Names, purpose: Purpose): readonly Right[] {
  const rights = rightsOf(names)
  if (purpose === 'everything') return rights
  return rights.map((right) => ({ ...right, privileges: right.essential }))
}

/** Null for an object that does not exist. A privilege on some columns counts. */
function hasPrivilege(name: string, kind: Right['kind'], privilege: string): string {
  if (kind === 'FUNCTION') return `has_function_privilege(to_regproc('${name}'), '${privilege}')`
  const object = `to_regclass('${name}')`
  if (kind === 'SEQUENCE') return `has_sequence_privilege(${object}, '${privilege}')`
  return privilege === 'DELETE'
    ? `has_table_privilege(${object}, '${privilege}')`
    : `has_any_column_privilege(${object}, '${privilege}')`
}

const COMMANDS: Readonly<Record<string, string>> = { SELECT: 'r', INSERT: 'a', UPDATE: 'w', DELETE: 'd' }

interface RowSecurity {
  readonly table: string
  /** Whether a policy exists for every command that is needed. Which rows it allows is not known. */
  readonly isAllowed: boolean
  /** Whether the policies allow every row, because they have no condition other than `true`. */
  readonly allowsAll: boolean
}

/** The tables on which row level security applies to the user. */
export async function rowSecurityOf(
  query: Query,
  names: Names,
  purpose: Purpose,
): Promise<readonly RowSecurity[]> {
  const tables = neededRights(names, purpose).filter(
    ({ kind, privileges }) => kind === 'TABLE' && privileges.length > 0,
  )
  const needs = tables.flatMap(({ name, privileges }, index) =>
    privileges.map((privilege) => `(${index}, to_regclass('${name}'), '${COMMANDS[privilege]}')`),
  )
  const isTrue = (expression: string) => `coalesce(pg_get_expr(${expression}, p.polrelid), 'true') = 'true'`
  const rows = await query(
    statement(`
select n, bool_and(p.permissive > 0)::int, bool_and(p.allowing > 0 and p.restricting = 0)::int
  from (values ${needs.join(', ')}) v (n, object, command) cross join lateral (
    select count(*) filter (where p.polpermissive) as permissive,
      count(*) filter (where p.polpermissive and p.is_true) as allowing,
      count(*) filter (where not p.polpermissive and not p.is_true) as restricting
      from (select *, ${isTrue('p.polqual')} and ${isTrue('p.polwithcheck')} as is_true from pg_policy p) p
     where p.polrelid = v.object and p.polcmd in (v.command, '*')
       and (p.polroles = '{0}' or exists (select from unnest(p.polroles) r where pg_has_role(r, 'USAGE')))) p
 where row_security_active(v.object::oid) group by n order by n`),
    [],
  )
  return rows.map(([n, isAllowed, allowsAll]) => ({
    table: tables[Number(n)]?.name ?? '',
    isAllowed: Number(isAllowed) === 1,
    allowsAll: Number(allowsAll) === 1,
  }))
}

/** Says which tables hide rows from a worker by row level security, or may hide them. Null if none does. */
export async function hiddenRows(query: Query, names: Names): Promise<string | null> {
  const active = await rowSecurityOf(query, names, 'handling')
  const hidden = active.filter(({ isAllowed }) => !isAllowed)
  const limited = active.filter(({ isAllowed, allowsAll }) => isAllowed && !allowsAll)
  const list = (tables: readonly RowSecurity[]) => tables.map(({ table }) => table).join(', ')
  const parts = [
    hidden.length > 0
      ? `row level security of ${list(hidden)} hides rows, because no policy allows them`
      : '',
    limited.length > 0
      ? `policies of ${list(limited)} have conditions, and hidden events are never handled`
      : '',
  ]
  return parts.filter(Boolean).join('; ') || null
}

/** Throws when the tables cannot be found because there is no schema to look into. */
export async function checkSchema(query: Query, names: Names): Promise<void> {
  const [row] = await query(statement(`select 1 ${from(names)}`), [])
  if (row === undefined) throw noSchema(names.schema)
}

/** One row if the search_path creates tables in a system schema. The server reports `pg_temp` only once it has been used. */
const systemSchema = statement(`
select from (
  select name from unnest(string_to_array(current_setting('search_path'), ',')) with ordinality path (entry, n),
    lateral (select replace(btrim(entry, ' "'), '$user', current_user) as name) entry
   where name = 'pg_temp' or name = any(current_schemas(false)) order by n limit 1) home
 where name ~ '^pg_'`)

/** Throws when a migration would be refused: there is no schema, or the user may not create or change what is in it. */
export async function checkMayMigrate(query: Query, names: Names): Promise<void> {
  if (names.schema === null && (await query(systemSchema, [])).length > 0) throw createsInSystemSchema()
  const mayCreate = `has_schema_privilege(n.oid, 'USAGE') and has_schema_privilege(n.oid, 'CREATE')`
  const [row] = await query(
    statement(`select quote_ident(n.nspname), (${mayCreate})::int ${from(names)}`),
    [],
  )
  if (row === undefined) throw noSchema(names.schema)
  if (Number(row[1]) !== 1) throw noCreate(String(row[0]))
  const objects = [...rightsOf(names), { name: names.publish, kind: 'FUNCTION' }]
  const owned = objects.map(({ name, kind }) =>
    kind === 'FUNCTION'
      ? `('${name}', (select proowner from pg_proc where oid = to_regproc('${name}')))`
      : `('${name}', (select relowner from pg_class where oid = to_regclass('${name}')))`,
  )
  const others = await query(
    statement(
      `select name from (values ${owned.join(', ')}) v (name, owner) where not pg_has_role(owner, 'USAGE')`,
    ),
    [],
  )
  if (others.length > 0) throw notOwner(others.map(([name]) => String(name)))
}

/** The schema of the tables, if it exists. A schema of the search_path that the user may not use counts as missing. */
function from({ schema }: Names): string {
  return `from pg_namespace n where n.nspname = ${schema === null ? 'current_schema()' : `'${schema}'`}`
}
