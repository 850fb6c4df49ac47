import type { Pool, RowDataPacket } from 'mysql2/promise'

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
