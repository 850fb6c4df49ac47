import fs from 'node:fs'
import { AftercommitError } from '../../core/errors.js'
import { type Connection, isBusy } from './driver.js'
import { PATIENCE_MS, type Reason } from './patience.js'

/** Begins a rollback journal that belongs to an open transaction. */
const JOURNAL_MAGIC = Buffer.from('d9d505f920a163d7', 'hex')

/**
 * The reason why a new connection cannot be used, if the settings of another connection are the reason. Null while an open
 * transaction may be the reason.
 */
export function reasonOfLock(connection: Connection, file: string): Reason | null {
  if (isReadable(connection)) return { error: notWal(), isCertain: false }
  return isHeldExclusively(file) ? { error: heldExclusively(), isCertain: true } : null
}

function isReadable(connection: Connection): boolean {
  try {
    connection.all('select 1 from sqlite_master limit 1')
    return true
  } catch (error) {
    if (isBusy(error)) return false
    throw error
  }
}

/**
 * Whether the files beside the database show that the connection that locks it is in locking_mode EXCLUSIVE: in WAL mode
 * such a connection has no shared memory, and otherwise no transaction is open that could lock out readers. The database
 * itself is not opened, because closing it again would release the locks that SQLite holds for this process.
 */
function isHeldExclusively(file: string): boolean {
  return fs.existsSync(`${file}-wal`) ? hasNoSharedMemory(file) : !isActive(`${file}-journal`)
}

/** Whether a connection in WAL mode that has read the file keeps its index to itself. */
export function hasNoSharedMemory(file: string): boolean {
  return !fs.existsSync(`${file}-shm`)
}

function isActive(journal: string): boolean {
  let descriptor: number
  try {
    descriptor = fs.openSync(journal, 'r')
  } catch {
    return false
  }
  try {
    const start = Buffer.alloc(JOURNAL_MAGIC.length)
    fs.readSync(descriptor, start, 0, start.length, 0)
    return start.equals(JOURNAL_MAGIC)
  } finally {
    fs.closeSync(descriptor)
  }
}

function heldExclusively(): AftercommitError {
  return new AftercommitError(
    'LOCKING_MODE',
    'Another connection holds the SQLite file in locking_mode EXCLUSIVE. Remove PRAGMA locking_mode = EXCLUSIVE from the connections of the application and open them again, because the outbox needs connections of its own.',
  )
}

export function openedExclusively(): AftercommitError {
  return new AftercommitError(
    'LOCKING_MODE',
    'The function open() returned a connection in locking_mode EXCLUSIVE. Remove PRAGMA locking_mode = EXCLUSIVE from it, because the store needs two connections to the file.',
  )
}

/** The reason why a transaction on a connection of the caller cannot begin, if that connection is the reason. */
export function reasonOfClient(connection: Connection): Reason | null {
  const [row] = connection.all('PRAGMA locking_mode')
  if (row?.locking_mode !== 'exclusive') return null
  const error = new AftercommitError(
    'LOCKING_MODE',
    'The connection of this transaction is in locking_mode EXCLUSIVE, but other connections have the SQLite file open. Run PRAGMA locking_mode = NORMAL on it.',
  )
  return { error, isCertain: true }
}

const REMOVE_PRAGMAS =
  'Remove PRAGMA journal_mode and PRAGMA locking_mode from it: the store sets journal_mode = WAL itself, which a connection cannot change while others are open.'

/** The reason why `open` finds the file locked. `isFree` tells whether another connection could have the lock. */
export function reasonOfOpen(isFree: boolean): Reason {
  const error = isFree
    ? new AftercommitError(
        'JOURNAL_MODE',
        `The function open() found the SQLite file locked, although no transaction holds the lock. ${REMOVE_PRAGMAS}`,
      )
    : new AftercommitError(
        'STORE_BUSY',
        `The function open() found the SQLite file locked for ${PATIENCE_MS / 1_000} seconds. Keep transactions short. ${REMOVE_PRAGMAS}`,
      )
  return { error, isCertain: isFree }
}

function notWal(): AftercommitError {
  return new AftercommitError(
    'JOURNAL_MODE',
    `The SQLite file is not in journal_mode WAL, and other connections have not let it change for ${PATIENCE_MS / 1_000} seconds. Let their transactions end, or run PRAGMA journal_mode = WAL once while nothing else uses the file.`,
  )
}
