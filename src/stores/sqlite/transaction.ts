import {
  AftercommitError,
  CommitUnknownError,
  TransactionEndedError,
  TransactionRolledBackError,
} from '../../core/errors.js'
import type { TransactionSession } from '../../transaction.js'
import { type Connection, isDiskFailure, type SqliteDatabase } from './driver.js'
import { reasonOfClient } from './modes.js'
import { patiently, type Reason } from './patience.js'

/** With the write lock from the start: a transaction that reads first and then wants to write may be refused. */
export function begin(connection: Connection, reason?: () => Reason | null): Promise<void> {
  return patiently(() => connection.exec('BEGIN IMMEDIATE'), reason)
}

/** On the caller's client, which may be set to wait for locks in a way that stops the whole process. */
export async function beginOn(connection: Connection): Promise<void> {
  if (connection.inTransaction) {
    throw new AftercommitError(
      'CLIENT_IN_TRANSACTION',
      'This client is inside a transaction already. Publish with publish(event, { tx: client }) instead.',
    )
  }
  const timeoutMs = Number(connection.all('PRAGMA busy_timeout')[0]?.timeout ?? 0)
  connection.exec('PRAGMA busy_timeout = 0')
  try {
    await begin(connection, () => reasonOfClient(connection))
  } finally {
    connection.exec(`PRAGMA busy_timeout = ${timeoutMs}`)
  }
}

/** body → commit, in the transaction that is open. When it is gone before its time, nothing was committed here. */
export async function runTransaction<Client extends SqliteDatabase, T>(
  connection: Connection<Client>,
  body: (session: TransactionSession<Client>) => Promise<T>,
): Promise<T> {
  let result: T
  connection.isWritten = null
  try {
    result = await body(sessionOf(connection))
  } catch (error) {
    rollBack(connection)
    throw error
  }
  if (!connection.inTransaction) throw ended(connection)
  await commit(connection)
  return result
}

/** Some failures (a full disk, ON CONFLICT ROLLBACK) end the whole transaction, and so can the application, by a COMMIT too. */
export function ended(connection: Connection): Error {
  const isKnown = connection.isOpen && connection.isWritten !== null
  return isKnown && !connection.isWritten?.()
    ? new TransactionRolledBackError()
    : new CommitUnknownError(new TransactionEndedError())
}

async function commit(connection: Connection): Promise<void> {
  try {
    await patiently(() => connection.exec('COMMIT'))
  } catch (error) {
    if (connection.inTransaction) {
      rollBack(connection)
      throw error
    }
    throw isDiskFailure(error) ? new CommitUnknownError(error) : new TransactionRolledBackError(error)
  }
}

/** What fails here fails on a broken connection, which is then replaced; the first error is the one to tell. */
function rollBack(connection: Connection): void {
  try {
    if (connection.inTransaction) connection.exec('ROLLBACK')
  } catch {}
}

/** The application's savepoints are not seen: the rows are looked up before every commit, which is one cheap read. */
function sessionOf<Client extends SqliteDatabase>(
  connection: Connection<Client>,
): TransactionSession<Client> {
  let savepoints = 0
  const session: TransactionSession<Client> = {
    client: connection.client,
    mayHaveLostRows: () => true,
    async savepoint(body) {
      if (!connection.inTransaction) throw new TransactionEndedError()
      const name = `aftercommit_${++savepoints}`
      connection.exec(`SAVEPOINT ${name}`)
      let result: Awaited<ReturnType<typeof body>>
      try {
        result = await body(session)
      } catch (error) {
        rollBackTo(connection, name)
        throw error
      }
      if (!connection.inTransaction) throw new TransactionRolledBackError()
      connection.exec(`RELEASE ${name}`)
      return result
    },
  }
  return session
}

function rollBackTo(connection: Connection, savepoint: string): void {
  if (!connection.inTransaction) return
  connection.exec(`ROLLBACK TO ${savepoint}`)
  connection.exec(`RELEASE ${savepoint}`)
}
