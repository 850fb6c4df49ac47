import { AftercommitError } from '../core/errors.js'
import { withoutPasswords } from '../core/redact.js'
import { describeError, read } from '../core/unknown.js'
import { explainUrl, UsageError } from './errors.js'
import { safe } from './text.js'
import { messageOf, reportOf } from './words.js'

/** A failure as the command line reports it. */
export interface Complaint {
  /** Stable across versions for errors of aftercommit. For other errors, the code of the driver, or `FAILED`. */
  readonly code: string
  /** Sentences on a single line, without a stack, that say what to do. */
  readonly message: string
  readonly exitCode: 1 | 2
}

const UNREACHABLE =
  /^(ECONNREFUSED|ECONNRESET|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|EPIPE|CONNECT_TIMEOUT|CONNECTION_\w+|PROTOCOL_CONNECTION_LOST)$/
/** Wrong user, password or database, of PostgreSQL and of MySQL. */
const REFUSED = /^(28P01|28000|3D000|ER_ACCESS_DENIED_ERROR|ER_DBACCESS_DENIED_ERROR|ER_BAD_DB_ERROR)$/
const NO_RIGHT = /^(42501|ER_TABLEACCESS_DENIED_ERROR|ER_PROCACCESS_DENIED_ERROR)$/
const NO_FILE = /^(ENOENT|EACCES|EISDIR|ENOTDIR|EPERM)$/
/** Of the drivers of SQLite. */
const NO_SQLITE = /file is not a database|unable to open|cannot open database/i
const TOO_LATE = /timeout exceeded when trying to connect|terminated due to connection timeout/

/** What went wrong, for a person at a shell. */
export function complaintOf(thrown: unknown): Complaint {
  // Some drivers look at the URL only when they connect.
  const error = explainUrl('The database URL', thrown)
  const isUsage = error instanceof UsageError || isInvalidSetting(error) || isParseError(error)
  const message = safe(withoutPasswords(sentences(error, isUsage)).replace(/\s*[\r\n]\s*/g, ' '))
  const code = isParseError(error) ? 'USAGE' : codeOf(error)
  return { code: CODE.test(code) ? code : 'FAILED', message, exitCode: isUsage ? 2 : 1 }
}

const CODE = /^\w{1,100}$/

function sentences(error: unknown, isUsage: boolean): string {
  const code = codeOf(error)
  if (code === 'STORE_NOT_MIGRATED')
    return 'The outbox tables are missing or too old. Run: aftercommit migrate'
  if (code === 'NO_ANSWER') return `${describeError(error).message} Is the address right, and is it well?`
  if (error instanceof AftercommitError || isUsage) return messageOf(error)
  const { name, message } = reportOf(error)
  // A missing Unix socket has the code of a missing file.
  const isConnect = read(error, 'syscall') === 'connect'
  if (isConnect || UNREACHABLE.test(code) || TOO_LATE.test(message))
    return `The server cannot be reached: ${message}. Is the address right, and does it run?`
  if (REFUSED.test(code)) return `The database refused: ${message}. Check user, password and name in the URL.`
  if (NO_RIGHT.test(code))
    return `The user of the URL lacks a right: ${message}. Grant it, or use another user.`
  if (NO_SQLITE.test(message))
    return `${message}. Is the path right, and is it a file of SQLite which you may read and write?`
  if (NO_FILE.test(code))
    return `A file cannot be read: ${message}. Check the paths in the URL, such as sslrootcert.`
  return `${name}: ${message}`
}

function codeOf(error: unknown): string {
  return typeof error === 'object' && error !== null && 'code' in error ? String(error.code) : ''
}

function isInvalidSetting(error: unknown): boolean {
  return codeOf(error) === 'INVALID_SETTING'
}

/** What node:util's parseArgs throws. */
function isParseError(error: unknown): boolean {
  return error instanceof TypeError && codeOf(error).startsWith('ERR_PARSE_ARGS')
}
