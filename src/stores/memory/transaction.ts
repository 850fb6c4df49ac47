import { CommitUnknownError, TransactionEndedError } from '../../core/errors.js'
import type { TransactionSession } from '../../transaction.js'
import type { MemoryClient, MemoryTransaction } from './client.js'

/** Tells the fault hook where it is: `commit` before the rows are there, `committed` when they are. */
export type Announce = (step: 'commit' | 'committed') => Promise<void>

/**
 * begin → body → commit. A body that throws, or a hook that throws at `commit`, rolls back; one that throws at
 * `committed` is a lost reply, so the rows are there and the caller gets CommitUnknownError.
 */
export async function runTransaction<T>(
  client: MemoryClient,
  announce: Announce,
  body: (session: TransactionSession<MemoryClient>) => Promise<T>,
): Promise<T> {
  client.begin()
  const { transaction } = client
  let result: T
  try {
    result = await body(sessionOf(client, transaction))
    await announce('commit')
  } catch (error) {
    if (transaction.isOpen) client.rollback()
    throw error
  }
  if (!transaction.isOpen) throw new TransactionEndedError()
  client.commit()
  try {
    await announce('committed')
  } catch (error) {
    throw new CommitUnknownError(error)
  }
  return result
}

function sessionOf(client: MemoryClient, transaction: MemoryTransaction): TransactionSession<MemoryClient> {
  const session: TransactionSession<MemoryClient> = {
    client,
    mayHaveLostRows: () => transaction.hasUnseenRollback,
    async savepoint(body) {
      if (!transaction.isOpen) throw new TransactionEndedError()
      const savepoint = transaction.savepoint()
      try {
        return await body(session)
      } catch (error) {
        if (transaction.isOpen) transaction.rollbackTo(savepoint)
        throw error
      }
    },
  }
  return session
}
