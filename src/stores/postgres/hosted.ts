import { TransactionEndedError } from '../../core/errors.js'
import { causesOf } from '../../core/unknown.js'
import type { HostedClient } from '../../transaction.js'
import { isServerError, type Query } from './driver.js'

/** The number that PostgreSQL gave to each transaction. */
const numbers = new WeakMap<HostedClient, Promise<string>>()

const WRITES = /^\s*insert\b[\s\S]*\breturning\b/i
const DIVISION_BY_ZERO = '22012'

/**
 * Statements inside a transaction of an ORM. One that writes fails in any other transaction, and so behind the end of its
 * own, where it would be committed by itself. (The time of a transaction's beginning does not tell: a statement with
 * parameters begins later than the transaction that it makes for itself.)
 */
export function hostedQuery(client: HostedClient, onError: (error: unknown) => never): Query {
  const run = async (text: string, params: readonly (string | number | null)[]) => {
    const rows = await client.query(text, params).catch((error) => onError(serverErrorIn(error)))
    return rows.map((row) => Object.values(row))
  }
  return async ({ text }, params) => {
    if (!WRITES.test(text)) return run(text, params)
    const number = await numberOf(client, run)
    const isSame = `1 / (txid_current()::text = $${params.length + 1}::text)::int as same`
    return run(`${text}, ${isSame}`, [...params, number]).catch((error) => {
      throw isServerError(error) && error.code === DIVISION_BY_ZERO ? new TransactionEndedError() : error
    })
  }
}

type Run = (text: string, params: readonly string[]) => Promise<readonly (readonly unknown[])[]>

function numberOf(client: HostedClient, run: Run): Promise<string> {
  let number = numbers.get(client)
  if (number === undefined) {
    number = run('select txid_current()::text as number', []).then(([row]) => String(row?.[0]))
    numbers.set(client, number)
    // A savepoint that is rolled back may make the next attempt a success.
    number.catch(() => numbers.delete(client))
  }
  return number
}

/** Whether the transaction in which rows were written is the one that is open. */
export async function isSameTransaction(client: HostedClient): Promise<boolean> {
  const number = await numbers.get(client)
  if (number === undefined) return true
  const [row] = await client.query('select txid_current_if_assigned()::text as number', [])
  return Object.values(row ?? {})[0] === number
}

/** What the server said, which an ORM wraps in an error of its own; the error itself when there is no such thing. */
export function serverErrorIn(error: unknown): unknown {
  return causesOf(error).find(isServerError) ?? error
}
