import type { Pool, RowDataPacket } from 'mysql2/promise'
import { until } from './until.js'

/**
 * Ids of the threads that wait for a row lock. Reads the text of the InnoDB monitor, because `information_schema.innodb_trx`
 * does not change while it is queried more than ten times per second.
 */
export async function waitingThreads(pool: Pool): Promise<number[]> {
  const [rows] = await pool.query<RowDataPacket[]>('show engine innodb status')
  const transactions = String(rows[0]?.Status).split('---TRANSACTION').slice(1)
  return transactions
    .filter((text) => text.includes('LOCK WAIT'))
    .map((text) => Number(/thread id (\d+)/.exec(text)?.[1]))
}

/** Resolves when a call waits for a row lock in the database of the pool. Rejects if the call ends without waiting. */
export async function untilWaiting(pool: Pool, call: Promise<unknown>): Promise<void> {
  let hasEnded = false
  const end = () => {
    hasEnded = true
  }
  call.then(end, end)
  await until(async () => {
    if (hasEnded) throw new Error('The call ended without waiting for the row lock.')
    const [ours] = await pool.query<RowDataPacket[]>(
      'select id as id from information_schema.processlist where db = database()',
    )
    const waiting = await waitingThreads(pool)
    return ours.some((row) => waiting.includes(Number(row.id)))
  })
}
