import { NestedTransactionError } from './errors.js'
import { isA } from './unknown.js'

/** Adds the name of the called method to a NestedTransactionError. */
export async function nameNested<T>(method: string, work: () => T | Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (!isA(error, NestedTransactionError) || error.method !== undefined) throw error
    throw new NestedTransactionError(error.reason, method)
  }
}
