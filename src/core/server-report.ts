import { read } from './unknown.js'

/*
 * Texts of database servers and drivers. A text is kept if its class is known to name objects, states and limits only.
 * Otherwise the codes of the error replace the text. Used by redact.ts.
 */

/** Follows every text that replaces the text of a server. */
export const SEE_ORIGINAL = " The server's text may hold data of the row: see the error's `originalMessage`."

/** A code that an error may show: a short word without data. */
export const CODE = /^[\w.-]{1,64}$/

/** Returns a server's report in words that hold no data; `undefined` if no server reported the error. */
export function safeText(error: unknown, message: string): string | undefined {
  if (isSystemError(error)) return withoutPath(error, message)
  const code = read(error, 'code')
  if (typeof read(error, 'severity') === 'string' && typeof code === 'string' && SQLSTATE.test(code))
    return postgresText(error, code, message)
  const [errno, sqlState] = [read(error, 'errno'), read(error, 'sqlState')]
  if (typeof errno === 'number' && typeof sqlState === 'string' && (sqlState !== '' || MYSQL_SAFE[errno]))
    return mysqlText(error, errno, sqlState, message)
  if (typeof read(error, 'errcode') === 'number' || (typeof code === 'string' && code.startsWith('SQLITE_')))
    return sqliteText(error, message)
  // Prisma wraps the server's text into a message of its own.
  if (typeof code === 'string' && /^P\d{4}$/.test(code)) return failureOf(error)
  return undefined
}

/** A failed call of the operating system, such as a refused connection. Its message holds addresses and paths only. */
function isSystemError(error: unknown): boolean {
  return typeof read(error, 'syscall') === 'string' && /^E[A-Z0-9]+$/.test(String(read(error, 'code')))
}

/** Fields of a system error that can hold a path. `dest` is the second path, and `address` can be a Unix socket. */
const PATH_FIELDS = ['path', 'dest', 'address'] as const

/** Removes the paths of files and sockets. An address of the network stays. */
function withoutPath(error: unknown, message: string): string {
  const paths = PATH_FIELDS.flatMap((field) => {
    const value = read(error, field)
    return typeof value === 'string' && value !== '' && (field !== 'address' || isPath(value)) ? [value] : []
  })
  let text = message
  for (const path of paths) text = text.replaceAll(` -> '${path}'`, '').replaceAll(` '${path}'`, '')
  for (const path of paths) if (text.endsWith(` ${path}`)) text = text.slice(0, -path.length - 1)
  return paths.some((path) => text.includes(path)) ? failureOf(error) : text
}

/** Whether the address of a system error is a Unix socket or a named pipe. */
export function isPath(address: unknown): boolean {
  return typeof address === 'string' && /[\\/]/.test(address)
}

const SQLSTATE = /^[0-9A-Z]{5}$/

/**
 * Whether a function in the database may have raised the error, and so may have written data into its text and its fields.
 * PostgreSQL says so in `where`, which Prisma does not pass on.
 */
export function isRaisedByCode(error: unknown): boolean {
  const where = read(error, 'where')
  return (typeof where === 'string' && where !== '') || isOfPrisma(error)
}

function isOfPrisma(error: unknown): boolean {
  return typeof read(error, 'kind') === 'string'
}

/** Classes whose text names objects, states and limits only. Other texts quote values, roles or databases. */
const POSTGRES_SAFE = /^(08(?!P01)|0A|23|25|26|3B|3F|40|42(?!501|704)|53(?!300)|54|55|57|58)/
const POSTGRES_NO_RIGHT = /^(permission denied for [\w ]*"?[\w$.-]+"?|must be owner of [\w ]+"?[\w$.-]+"?)$/
const POSTGRES_POLICY = /^new row violates row-level security policy .*for table "[\w$.-]+"$/

function postgresText(error: unknown, code: string, message: string): string {
  const isSafe =
    POSTGRES_SAFE.test(code) ||
    (code === '42501' && (POSTGRES_NO_RIGHT.test(message) || POSTGRES_POLICY.test(message)))
  return isSafe && !isRaisedByCode(error) ? message : reportText(wordsOf(code), [`SQLSTATE ${code}`])
}

/**
 * Texts of MySQL and MariaDB that hold names only, by number. The number must fit, because SIGNAL can raise any text. It
 * raises with 1644 unless the trigger says otherwise.
 */
const MYSQL_SAFE: Readonly<Record<number, RegExp>> = {
  1048: /^Column '[\w$]+' cannot be null$/,
  1054: /^Unknown column '[\w$.]+' in [\w ']+$/,
  1146: /^Table '[\w$.-]+' doesn't exist$/,
  1205: /^Lock wait timeout exceeded; try restarting transaction$/,
  1213: /^Deadlock found when trying to get lock; try restarting transaction$/,
  1227: /^Access denied; you need \(at least one of\) the [A-Z_, ]+ privilege\(s\) for this operation$/,
  1364: /^Field '[\w$]+' doesn't have a default value$/,
  1406: /^Data too long for column '[\w$]+' at row \d+$/,
  1665: /^Cannot execute statement: impossible to write to binary log since BINLOG_FORMAT = STATEMENT and [\w ,.()-]+$/,
  3819: /^Check constraint '[\w$.-]+' is violated\.?$/,
  4025: /^CONSTRAINT `[\w$.-]+` failed for `[\w$-]+`\.`[\w$-]+`$/,
}
const MYSQL_NO_RIGHT = /^([A-Z ,]+command denied) to user .* (for table [`'][\w$.`-]+[`'])$/s

function mysqlText(error: unknown, errno: number, sqlState: string, message: string): string {
  if (MYSQL_SAFE[errno]?.test(message)) return message
  const denied = errno === 1142 ? MYSQL_NO_RIGHT.exec(message) : null
  if (denied) return `${denied[1]} ${denied[2]}`
  const name = read(error, 'code')
  const codes = typeof name === 'string' && CODE.test(name) ? [name] : []
  const state = sqlState === '' ? [] : [`SQLSTATE ${sqlState}`]
  return reportText(wordsOf(sqlState), [...codes, `errno ${errno}`, ...state])
}

/** Codes whose text SQLite writes itself. RAISE in a trigger has a code of its own, SQLITE_CONSTRAINT_TRIGGER. */
const SQLITE_SAFE =
  /^SQLITE_(BUSY|LOCKED|NOMEM|READONLY|INTERRUPT|IOERR|CORRUPT|FULL|CANTOPEN|TOOBIG|NOTADB|CONSTRAINT_(CHECK|NOTNULL|PRIMARYKEY|UNIQUE|FOREIGNKEY|ROWID)$)/
const SQLITE_SAFE_NUMBERS = [5, 6, 7, 8, 9, 10, 11, 13, 14, 18, 26]
const SQLITE_SAFE_CONSTRAINTS = [275, 787, 1299, 1555, 2067, 2579]
const SQLITE_NAMES =
  /^(\w*Error: )?(SQLITE_ERROR: )?(no such (table|column): [\w$.]+|table [\w$.]+ has no column named [\w$]+)$/

function sqliteText(error: unknown, message: string): string {
  const [errcode, code] = [read(error, 'errcode'), String(read(error, 'extendedCode') ?? read(error, 'code'))]
  const isSafe =
    typeof errcode === 'number'
      ? SQLITE_SAFE_NUMBERS.includes(errcode & 0xff) || SQLITE_SAFE_CONSTRAINTS.includes(errcode)
      : SQLITE_SAFE.test(code)
  if ((isSafe && !isOfPrisma(error)) || SQLITE_NAMES.test(message)) return message
  const codes = [CODE.test(code) ? code : '', typeof errcode === 'number' ? `errcode ${errcode}` : '']
  return reportText(
    'the database refused the statement',
    codes.filter((text) => text !== ''),
  )
}

/** Meaning of each class of SQLSTATE whose text is replaced. */
const WORDS: Readonly<Record<string, string>> = {
  '08': 'the connection failed',
  '22': 'a value is not acceptable',
  '23': 'a constraint is violated',
  '28': 'user or password is wrong',
  '3D': 'the database does not exist',
  '40': 'the transaction was rolled back',
  '42': 'a table, column or right is missing',
  '45': 'a trigger or function raised an error',
  '53': 'the server has too many connections',
  P0: 'a trigger or function raised an error',
}

function wordsOf(sqlState: string): string {
  return WORDS[sqlState.slice(0, 2)] ?? 'the database reported an error'
}

function reportText(words: string, codes: readonly string[]): string {
  const safe = codes.filter((code) => /^[\w .-]{1,80}$/.test(code)).join(', ')
  return `${words}${safe === '' ? '' : ` (${safe})`}.${SEE_ORIGINAL}`
}

/** For an error of a driver or an ORM whose text quotes an event or a statement. */
export function failureOf(error: unknown): string {
  const code = String(read(error, 'code') ?? read(error, 'errno') ?? '')
  return reportText('the statement failed', CODE.test(code) ? [code] : [])
}
