import type { Outbox } from 'aftercommit'
import type Database from 'libsql'

/** What use cases see of a transaction: a place for their statements. Events are published inside it. */
export interface UnitOfWork {
  run<T>(work: (database: Database.Database) => Promise<T>): Promise<T>
}

export function unitOfWork(outbox: Outbox<Database.Database>): UnitOfWork {
  return { run: (work) => outbox.transaction((tx) => work(tx.client)) }
}
